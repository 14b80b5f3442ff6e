"""A 3 x 7 filter of its own for every channel."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "depthwise", "memory", "level1-85"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 10, "width": 22}],
    held_out=[{"batch": 3, "height": 9, "width": 17}],
)
@task(
    x=normal("batch, 128, height, width"),
    weight=normal("128, 1, 3, 7", std=0.22),
    workloads=[{"name": "full", "batch": 32, "height": 128, "width": 256}],
    precision="fp32",
)
def conv2d_depthwise_3x7(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight, groups=128)
