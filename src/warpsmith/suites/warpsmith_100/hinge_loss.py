"""The mean of one minus prediction times sign, where that is positive."""

import torch

from warpsmith import custom, listed, normal, task


def signs(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> torch.Tensor:
    return torch.randint(0, 2, shape, generator=generator, device=device).float() * 2 - 1


@listed(
    family="loss",
    tags=["scalar-result", "memory", "level1-100"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 500}],
    held_out=[{"rows": 61, "cols": 1001}, {"rows": 3, "cols": 4099}],
)
@task(
    predictions=normal("rows, cols"),
    targets=custom("cols", signs),
    workloads=[{"name": "full", "rows": 32_768, "cols": 32_768}],
    precision="fp32",
)
def hinge_loss(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.mean(torch.clamp(1 - predictions * targets, min=0))
