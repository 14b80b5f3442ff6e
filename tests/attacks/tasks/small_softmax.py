"""Softmax over the rows of a small matrix, with sides that eight does not divide.

Written in single steps, each of which PyTorch does in one thread at this size (its `exp` takes all of them): on a busy
machine that is measured far better than a team of threads.
"""

import math

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 7, "cols": 100}], precision="fp32")
def small_softmax(x: torch.Tensor) -> torch.Tensor:
    exponential = torch.exp2((x - x.amax(dim=-1, keepdim=True)) * math.log2(math.e))
    return exponential / exponential.sum(dim=-1, keepdim=True)
