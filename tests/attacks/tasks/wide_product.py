"""A product in which a candidate must compute by itself."""

import torch

from warpsmith import normal, task


@task(a=normal("m, k"), b=normal("k, n"), workloads=[{"m": 384, "k": 384, "n": 384}], precision="fp32")
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
