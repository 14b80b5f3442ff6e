"""A 3 x 3 filter for every channel of images twice as wide as high."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "depthwise", "memory", "level1-84"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 10, "width": 18}],
    held_out=[{"batch": 3, "height": 11, "width": 13}],
)
@task(
    x=normal("batch, 128, height, width"),
    weight=normal("128, 1, 3, 3", std=0.33),
    workloads=[{"name": "full", "batch": 64, "height": 256, "width": 512}],
    precision="fp32",
)
def conv2d_depthwise_oblong(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight, groups=128)
