"""A matrix product that takes milliseconds on a GPU."""

import torch

from warpsmith import normal, task


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 4096, "n": 4096, "k": 4096}], precision="fp32")
def matmul_4096(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
