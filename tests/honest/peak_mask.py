"""Which elements of a row are its largest: a bool result."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 256, "cols": 1000}, {"rows": 999, "cols": 37}],
    precision="fp32",
)
def peak_mask(x: torch.Tensor) -> torch.Tensor:
    return x == x.amax(dim=-1, keepdim=True)
