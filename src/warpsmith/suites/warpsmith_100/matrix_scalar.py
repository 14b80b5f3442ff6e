"""Every element of a matrix times one number."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="matmul",
    tags=["elementwise", "memory", "level1-5"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 1000}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 1, "cols": 1001}],
)
@task(
    a=normal("rows, cols"),
    s=scalar(3.14),
    workloads=[{"name": "full", "rows": 65_536, "cols": 16_384}],
    precision="fp32",
)
def matrix_scalar(a: torch.Tensor, s: float) -> torch.Tensor:
    return a * s
