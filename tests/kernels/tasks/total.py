"""The sum of all elements: a result without dimensions."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 100_000}], precision="fp32")
def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum()
