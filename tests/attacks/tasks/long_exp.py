"""The exponential of each element: long enough for a clock to be worth forging, and little data to lay out."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1_500_000}], precision="fp32")
def long_exp(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x)
