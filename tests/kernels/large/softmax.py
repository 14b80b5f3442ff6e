"""Softmax over the rows of a matrix of 128 MB."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 8192}], precision="fp32")
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
