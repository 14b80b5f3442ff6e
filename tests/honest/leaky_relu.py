"""The positive part of every element, and a little of the negative one: a scalar argument, an odd length."""

import torch

from warpsmith import normal, scalar, task


@task(
    x=normal("n"),
    slope=scalar(0.01),
    workloads=[{"name": "odd", "n": 300_007}, {"name": "small", "n": 4099}],
    precision="fp32",
)
def leaky_relu(x: torch.Tensor, slope: float) -> torch.Tensor:
    return torch.nn.functional.leaky_relu(x, slope)
