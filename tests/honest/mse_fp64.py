"""The mean squared difference of two vectors in double precision."""

import torch

from warpsmith import normal, task


@task(
    a=normal("n"),
    b=normal("n"),
    workloads=[{"name": "even", "n": 1 << 17}, {"name": "odd", "n": 33_333}],
    precision="fp64",
)
def mse_fp64(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.mse_loss(a, b)
