"""The exponential of each element: long enough for a clock to be worth forging, and little data to lay out."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 600_000}], precision="fp32")
def long_exp(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x)
