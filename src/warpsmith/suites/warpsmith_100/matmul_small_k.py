"""A product with a small inner extent: the result is the largest tensor."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-7"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "m": 256, "k": 16, "n": 256}],
    held_out=[{"m": 127, "k": 64, "n": 255}, {"m": 200, "k": 33, "n": 100}],
)
@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"name": "full", "m": 32_768, "k": 64, "n": 32_768}],
    precision="fp32",
)
def matmul_small_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
