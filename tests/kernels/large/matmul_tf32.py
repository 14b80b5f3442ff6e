"""A 4096 x 4096 x 4096 matrix product of the tf32 class."""

import torch

from warpsmith import normal, task


@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"m": 4096, "n": 4096, "k": 4096}],
    precision="tf32",
)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
