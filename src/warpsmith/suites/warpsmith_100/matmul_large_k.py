"""A product whose inner extent is far larger than the outer ones."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-6"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "m": 32, "k": 4096, "n": 32}],
    held_out=[{"m": 61, "k": 4099, "n": 33}],
)
@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"name": "full", "m": 256, "k": 524_288, "n": 256}],
    precision="fp32",
)
def matmul_large_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
