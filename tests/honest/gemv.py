"""A matrix times a vector."""

import torch

from warpsmith import normal, task


@task(
    a=normal("rows, cols"),
    x=normal("cols"),
    workloads=[{"rows": 400, "cols": 1000}, {"rows": 61, "cols": 4099}],
    precision="fp32",
)
def gemv(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return a @ x
