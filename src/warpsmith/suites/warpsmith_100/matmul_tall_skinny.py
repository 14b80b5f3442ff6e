"""A tall, narrow matrix times a wide, low one."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-9"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "m": 256, "k": 16, "n": 256}],
    held_out=[{"m": 127, "k": 32, "n": 255}, {"m": 200, "k": 17, "n": 100}],
)
@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"name": "full", "m": 32_768, "k": 32, "n": 32_768}],
    precision="fp32",
)
def matmul_tall_skinny(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
