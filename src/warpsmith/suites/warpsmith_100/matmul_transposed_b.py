"""A product whose second factor is stored transposed."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-17"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "m": 64, "k": 256, "n": 128}],
    held_out=[{"m": 127, "k": 333, "n": 130}],
)
@task(
    a=normal("m, k"),
    b=normal("n, k"),
    workloads=[{"name": "full", "m": 2048, "k": 8192, "n": 4096}],
    precision="fp32",
)
def matmul_transposed_b(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.T
