"""The mean of all elements: one number, in which most of the terms cancel."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 400, "cols": 1000}, {"rows": 127, "cols": 1001}],
    precision="fp32",
)
def mean_all(x: torch.Tensor) -> torch.Tensor:
    return x.mean()
