"""Group normalisation of an image: eight groups of channels."""

import torch

from warpsmith import normal, scalar, task


@task(
    x=normal("batch, channels, pixels"),
    weight=normal("channels", mean=1, std=0.1),
    bias=normal("channels", std=0.1),
    groups=scalar(8),
    eps=scalar(1e-5),
    workloads=[
        {"batch": 4, "channels": 32, "pixels": 1024},
        {"batch": 3, "channels": 48, "pixels": 361},
    ],
    precision="fp32",
)
def group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return torch.nn.functional.group_norm(x, groups, weight, bias, eps)
