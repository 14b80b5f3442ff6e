"""Rectified linear unit, element by element."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1 << 20}, {"n": 1 << 24}])
def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
