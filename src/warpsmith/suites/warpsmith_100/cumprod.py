"""Running products along the rows, of factors near one so that they neither vanish nor overflow."""

import torch

from warpsmith import listed, task, uniform


@listed(
    family="scan",
    tags=["rows", "memory", "level1-90"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 50, "cols": 999}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 130, "cols": 256}],
)
@task(
    x=uniform("rows, cols", low=0.998, high=1.002),
    workloads=[{"name": "full", "rows": 32_768, "cols": 32_768}],
    precision="fp32",
)
def cumprod(x: torch.Tensor) -> torch.Tensor:
    return x.cumprod(dim=1)
