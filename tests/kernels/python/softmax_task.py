"""Softmax over the rows of a matrix, where a candidate may use PyTorch's operators."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"name": "wide", "rows": 512, "cols": 256}, {"name": "odd", "rows": 64, "cols": 1000}],
    precision="fp32",
    allow=["torch"],
)
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
