"""A matrix product of the fp32 class, where a candidate may use PyTorch's operators."""

import torch

from warpsmith import normal, task


@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"m": 256, "n": 256, "k": 384}],
    precision="fp32",
    allow=["torch"],
)
def matmul_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
