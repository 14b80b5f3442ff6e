"""A matrix product of the fp32 class that takes a millisecond."""

import torch

from warpsmith import normal, task


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 256, "n": 256, "k": 256}], precision="fp32")
def product_256(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
