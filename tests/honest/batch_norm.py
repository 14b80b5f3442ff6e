"""Batch normalisation at inference: the statistics are inputs, and the variance is never negative."""

import torch

from warpsmith import normal, scalar, task, uniform


@task(
    x=normal("batch, channels, pixels"),
    mean=normal("channels"),
    variance=uniform("channels", low=0.25, high=4),
    weight=normal("channels", mean=1, std=0.1),
    bias=normal("channels", std=0.1),
    eps=scalar(1e-5),
    workloads=[
        {"batch": 4, "channels": 64, "pixels": 1000},
        {"batch": 3, "channels": 17, "pixels": 49},
    ],
    precision="fp32",
)
def batch_norm(
    x: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)
