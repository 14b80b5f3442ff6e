"""Running sums along the rows from their end."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="scan",
    tags=["rows", "memory", "level1-91"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 50, "cols": 999}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 130, "cols": 256}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 32_768, "cols": 32_768}],
    precision="fp32",
)
def cumsum_reverse(x: torch.Tensor) -> torch.Tensor:
    return x.flip(1).cumsum(dim=1).flip(1)
