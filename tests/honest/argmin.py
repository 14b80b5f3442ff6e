"""The row of the smallest element of every column."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 250, "cols": 1000}, {"rows": 4099, "cols": 61}],
    precision="fp32",
)
def argmin(x: torch.Tensor) -> torch.Tensor:
    return x.argmin(dim=0)
