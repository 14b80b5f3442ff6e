"""Softmax over rows, where a candidate must compute by itself; too small for several threads of the CPU."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"name": "odd", "rows": 64, "cols": 1000}], precision="fp32")
def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
