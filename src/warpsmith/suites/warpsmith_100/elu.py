"""The exponential linear unit."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="activation",
    tags=["elementwise", "memory", "level1-31"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 1000}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 3, "cols": 20_000}],
)
@task(
    x=normal("rows, cols"),
    alpha=scalar(1.0),
    workloads=[{"name": "full", "rows": 4096, "cols": 393_216}],
    precision="fp32",
)
def elu(x: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.nn.functional.elu(x, alpha)
