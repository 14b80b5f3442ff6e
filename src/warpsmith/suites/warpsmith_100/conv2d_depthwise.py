"""A 3 x 3 filter of its own for every channel."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "depthwise", "memory", "level1-82"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 14, "width": 18}],
    held_out=[{"batch": 3, "height": 11, "width": 13}],
)
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("64, 1, 3, 3", std=0.33),
    workloads=[{"name": "full", "batch": 16, "height": 512, "width": 512}],
    precision="fp32",
)
def conv2d_depthwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight, groups=64)
