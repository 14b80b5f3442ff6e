"""The positive part of every element."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1 << 18}], precision="fp32")
def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
