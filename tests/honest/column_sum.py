"""The sum of every column: a reduction across rows that lie far apart in memory."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 400, "cols": 1000}, {"rows": 4099, "cols": 61}],
    precision="fp32",
)
def column_sum(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=0)
