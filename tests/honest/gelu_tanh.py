"""GELU in its tanh form."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols", std=2),
    workloads=[{"rows": 256, "cols": 1000}, {"rows": 127, "cols": 65}],
    precision="fp32",
)
def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")
