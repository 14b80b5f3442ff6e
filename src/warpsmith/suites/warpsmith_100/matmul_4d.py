"""The last axis of a four-dimensional tensor is contracted with a matrix."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["product", "level1-11"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 8, "width": 16, "k": 32, "n": 48}],
    held_out=[{"batch": 3, "height": 5, "width": 17, "k": 33, "n": 65}],
)
@task(
    a=normal("batch, height, width, k"),
    b=normal("k, n"),
    workloads=[{"name": "full", "batch": 8, "height": 256, "width": 512, "k": 256, "n": 768}],
    precision="fp32",
)
def matmul_4d(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bijl,lk->bijk", a, b)
