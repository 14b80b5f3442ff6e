"""GELU in its tanh form, step by step."""

import math

import torch

from warpsmith import listed, normal, task


@listed(
    family="activation",
    tags=["elementwise", "memory", "level1-88"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 1000}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 3, "cols": 20_000}],
)
@task(
    x=normal("rows, cols", std=2),
    workloads=[{"name": "full", "rows": 8192, "cols": 8192}],
    precision="fp32",
)
def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))
    return 0.5 * x * (1 + torch.tanh(inner))
