"""A matrix product of the fp32 class."""

import torch

from warpsmith import normal, task


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 64, "n": 96, "k": 250}], precision="fp32")
def small_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
