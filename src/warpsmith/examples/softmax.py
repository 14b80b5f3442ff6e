"""Softmax over the rows of a matrix."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 1024, "cols": 1024}, {"rows": 64, "cols": 16000}],
    precision="fp32",
)
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
