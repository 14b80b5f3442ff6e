"""ReLU of 64 M elements: bound by memory alone."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1 << 26}], precision="fp32")
def relu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
