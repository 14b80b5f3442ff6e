"""A 3 x 3 convolution of images twice as wide as high."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "level1-55"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 8, "width": 14}],
    held_out=[{"batch": 3, "height": 7, "width": 11}],
)
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("128, 64, 3, 3", std=0.042),
    workloads=[{"name": "full", "batch": 8, "height": 512, "width": 1024}],
    precision="fp32",
)
def conv2d_oblong(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight)
