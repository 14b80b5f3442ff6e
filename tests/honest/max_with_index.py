"""The largest element of every row and where it is: two results, one of them of integers."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 256, "cols": 1000}, {"rows": 4099, "cols": 33}],
    precision="fp32",
    returns="peak, place",
)
def max_with_index(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    peak, place = x.max(dim=-1)
    return peak, place
