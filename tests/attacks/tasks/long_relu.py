"""The positive part of many elements: long enough for a clock to be worth forging."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 5_000_000}], precision="fp32")
def long_relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
