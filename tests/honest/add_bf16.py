"""The sum of two bfloat16 vectors, the second one scaled."""

import torch

from warpsmith import normal, scalar, task


@task(
    a=normal("n"),
    b=normal("n"),
    alpha=scalar(0.5),
    workloads=[{"name": "even", "n": 1 << 18}, {"name": "odd", "n": 33_333}],
    precision="bf16",
)
def add_bf16(a: torch.Tensor, b: torch.Tensor, alpha: float) -> torch.Tensor:
    return torch.add(a, b, alpha=alpha)
