"""A diagonal matrix, given by its diagonal, times a matrix."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="matmul",
    tags=["elementwise", "memory", "structured", "level1-12"],
    precisions=["fp32"],
    small=[{"name": "small", "n": 100, "m": 128}],
    held_out=[{"n": 127, "m": 257}, {"n": 33, "m": 1000}],
)
@task(
    a=normal("n"),
    b=normal("n, m"),
    workloads=[{"name": "full", "n": 4096, "m": 4096}],
    precision="fp32",
)
def matmul_diagonal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[:, None] * b
