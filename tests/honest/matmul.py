"""A matrix product, square and odd."""

import torch

from warpsmith import normal, task


@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"m": 256, "n": 256, "k": 256}, {"m": 127, "n": 130, "k": 333}],
    precision="fp32",
)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
