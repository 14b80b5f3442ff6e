"""Softmax over the rows of a matrix, short rows and long ones."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"name": "short", "rows": 1024, "cols": 127}, {"name": "long", "rows": 32, "cols": 4099}],
    precision="fp32",
)
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
