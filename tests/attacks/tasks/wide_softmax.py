"""Softmax over the rows of 4 MB: long enough that threads work more than they wait for each other."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 512, "cols": 2048}], precision="fp32")
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
