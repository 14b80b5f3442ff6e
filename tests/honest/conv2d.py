"""A 3 x 3 convolution with bias, padded by one."""

import torch

from warpsmith import normal, task


@task(
    x=normal("batch, 8, height, width"),
    weight=normal("16, 8, 3, 3", std=0.1),
    bias=normal("16"),
    workloads=[
        {"batch": 4, "height": 48, "width": 64},
        {"batch": 2, "height": 37, "width": 41},
    ],
    precision="fp32",
)
def conv2d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight, bias, padding=1)
