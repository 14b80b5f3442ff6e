"""A matrix times a column: very long rows."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "memory", "level1-4"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "rows": 64, "cols": 4096}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 257, "cols": 1000}],
)
@task(
    a=normal("rows, cols"),
    b=normal("cols, 1"),
    workloads=[{"name": "full", "rows": 2048, "cols": 1_048_576}],
    precision="fp32",
)
def matvec(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
