"""The hyperbolic tangent of every element."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="activation",
    tags=["elementwise", "memory", "level1-22"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 1000}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 3, "cols": 20_000}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 4096, "cols": 393_216}],
    precision="fp32",
)
def tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x)
