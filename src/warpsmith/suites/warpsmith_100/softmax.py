"""Softmax of every row."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="activation",
    tags=["rows", "memory", "level1-23"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 1000}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 3, "cols": 20_000}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 4096, "cols": 393_216}],
    precision="fp32",
)
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1)
