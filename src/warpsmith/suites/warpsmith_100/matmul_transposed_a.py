"""A product whose first factor is stored transposed."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-16"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "k": 256, "m": 64, "n": 128}],
    held_out=[{"k": 333, "m": 127, "n": 130}],
)
@task(
    a=normal("k, m"),
    b=normal("k, n"),
    workloads=[{"name": "full", "k": 8192, "m": 2048, "n": 4096}],
    precision="fp32",
)
def matmul_transposed_a(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.T @ b
