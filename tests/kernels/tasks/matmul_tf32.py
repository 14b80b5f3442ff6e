"""A matrix product of the tf32 class."""

import torch

from warpsmith import normal, task


@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"m": 256, "n": 256, "k": 384}],
    precision="tf32",
)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
