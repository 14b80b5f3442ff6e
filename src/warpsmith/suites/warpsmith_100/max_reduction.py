"""The largest element along the middle axis."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="reduction",
    tags=["columns", "memory", "level1-49"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 4, "rows": 200, "cols": 63}],
    held_out=[{"batch": 3, "rows": 127, "cols": 33}, {"batch": 2, "rows": 1000, "cols": 16}],
)
@task(
    x=normal("batch, rows, cols"),
    workloads=[{"name": "full", "batch": 128, "rows": 4096, "cols": 4095}],
    precision="fp32",
)
def max_reduction(x: torch.Tensor) -> torch.Tensor:
    return x.max(dim=1).values
