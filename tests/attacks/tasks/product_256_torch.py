"""The same with PyTorch allowed."""

import torch

from warpsmith import normal, task


@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"m": 256, "n": 256, "k": 256}],
    precision="fp32",
    allow=["torch"],
)
def product_256_torch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
