"""The product of two square matrices."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-1"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "n": 96}],
    held_out=[{"n": 127}, {"n": 200}],
)
@task(
    a=normal("n, n"),
    b=normal("n, n"),
    workloads=[{"name": "full", "n": 4096}],
    precision="fp32",
)
def matmul_square(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
