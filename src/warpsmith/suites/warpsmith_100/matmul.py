"""The product of two matrices of unequal sides."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-2"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "m": 64, "k": 256, "n": 128}],
    held_out=[{"m": 127, "k": 333, "n": 130}, {"m": 33, "k": 64, "n": 257}],
)
@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"name": "full", "m": 2048, "k": 8192, "n": 4096}],
    precision="fp32",
)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
