"""A large matrix product of the fp32 class, where a candidate may use PyTorch's operators."""

import torch

from warpsmith import normal, task


@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[{"m": 4096, "n": 4096, "k": 4096}],
    precision="fp32",
    allow=["torch"],
)
def matmul_torch_4096(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
