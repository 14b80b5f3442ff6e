"""A product in which no side is a multiple of anything convenient."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-8"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "m": 77, "k": 115, "n": 93}],
    held_out=[{"m": 61, "k": 131, "n": 67}, {"m": 128, "k": 64, "n": 96}],
)
@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"name": "full", "m": 8205, "k": 2949, "n": 5921}],
    precision="fp32",
)
def matmul_irregular(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
