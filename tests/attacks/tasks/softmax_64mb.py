"""Softmax of a matrix that does not fit into any cache."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 4096}], precision="fp32")
def softmax_64mb(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
