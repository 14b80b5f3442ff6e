"""The mean squared difference of two matrices."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="loss",
    tags=["scalar-result", "memory", "level1-94"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 500}],
    held_out=[{"rows": 61, "cols": 1001}, {"rows": 3, "cols": 4099}],
)
@task(
    predictions=normal("rows, cols"),
    targets=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 32_768, "cols": 32_768}],
    precision="fp32",
)
def mse_loss(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.mean((predictions - targets) ** 2)
