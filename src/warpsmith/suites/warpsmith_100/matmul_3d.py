"""Every matrix of a stack times the same matrix."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-10"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 4, "m": 32, "k": 64, "n": 48}],
    held_out=[{"batch": 3, "m": 33, "k": 127, "n": 65}],
)
@task(
    a=normal("batch, m, k"),
    b=normal("k, n"),
    workloads=[{"name": "full", "batch": 16, "m": 1024, "k": 2048, "n": 768}],
    precision="fp32",
)
def matmul_3d(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
