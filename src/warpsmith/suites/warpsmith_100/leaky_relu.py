"""The positive part of every element, and a little of the negative one."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="activation",
    tags=["elementwise", "memory", "level1-20"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 1000}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 3, "cols": 20_000}],
)
@task(
    x=normal("rows, cols"),
    slope=scalar(0.01),
    workloads=[{"name": "full", "rows": 4096, "cols": 393_216}],
    precision="fp32",
)
def leaky_relu(x: torch.Tensor, slope: float) -> torch.Tensor:
    return torch.nn.functional.leaky_relu(x, slope)
