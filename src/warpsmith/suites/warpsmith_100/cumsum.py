"""Running sums along the rows."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="scan",
    tags=["rows", "memory", "level1-89"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 50, "cols": 999}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 130, "cols": 256}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 32_768, "cols": 32_768}],
    precision="fp32",
)
def cumsum(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(dim=1)
