"""The products of many pairs of matrices."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-3"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 4, "m": 32, "k": 64, "n": 96}],
    held_out=[{"batch": 3, "m": 65, "k": 127, "n": 33}],
)
@task(
    a=normal("batch, m, k"),
    b=normal("batch, k, n"),
    workloads=[{"name": "full", "batch": 128, "m": 512, "k": 1024, "n": 2048}],
    precision="fp32",
)
def matmul_batched(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.bmm(a, b)
