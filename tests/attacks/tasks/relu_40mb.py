"""The positive part of 40 MB: less than the L2 cache of a large GPU holds."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 10 << 20}], precision="fp32")
def relu_40mb(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x)
