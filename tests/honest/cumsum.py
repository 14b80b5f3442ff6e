"""Running sums along the rows: every result depends on all before it."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"name": "long", "rows": 4, "cols": 65_537}, {"name": "short", "rows": 1000, "cols": 127}],
    precision="fp32",
)
def cumsum(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(dim=-1)
