"""A 5 x 7 convolution of images twice as high as wide."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "level1-56"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 14, "width": 12}],
    held_out=[{"batch": 1, "height": 11, "width": 15}],
)
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("128, 64, 5, 7", std=0.021),
    workloads=[{"name": "full", "batch": 8, "height": 512, "width": 256}],
    precision="fp32",
)
def conv2d_oblong_5x7(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight)
