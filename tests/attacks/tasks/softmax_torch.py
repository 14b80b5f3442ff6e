"""Softmax over rows, where a candidate may use PyTorch's operators; too small for several threads of the CPU."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"name": "odd", "rows": 16, "cols": 1000}],
    precision="fp32",
    allow=["torch"],
)
def softmax_torch(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)
