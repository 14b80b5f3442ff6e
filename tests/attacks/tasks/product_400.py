"""A matrix product of the fp32 class that takes some milliseconds."""

import torch

from warpsmith import normal, task


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 400, "n": 400, "k": 400}], precision="fp32")
def product_400(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
