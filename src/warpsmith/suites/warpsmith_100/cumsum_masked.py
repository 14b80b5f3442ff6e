"""Running sums of the elements that a mask selects."""

import torch

from warpsmith import booleans, listed, normal, task


@listed(
    family="scan",
    tags=["rows", "memory", "masked", "level1-93"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 50, "cols": 999}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 130, "cols": 256}],
)
@task(
    x=normal("rows, cols"),
    mask=booleans("rows, cols"),
    workloads=[{"name": "full", "rows": 32_768, "cols": 32_768}],
    precision="fp32",
)
def cumsum_masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask).cumsum(dim=1)
