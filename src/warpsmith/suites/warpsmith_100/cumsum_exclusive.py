"""Running sums of what comes before each element."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="scan",
    tags=["rows", "memory", "level1-92"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 50, "cols": 999}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 130, "cols": 256}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 32_768, "cols": 32_768}],
    precision="fp32",
)
def cumsum_exclusive(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(x, (1, 0)).cumsum(dim=1)[:, :-1]
