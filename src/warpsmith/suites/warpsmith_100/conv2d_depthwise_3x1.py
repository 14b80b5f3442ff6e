"""A vertical filter of three taps for every channel."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "depthwise", "memory", "level1-83"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 34, "width": 40}],
    held_out=[{"batch": 3, "height": 31, "width": 29}],
)
@task(
    x=normal("batch, 8, height, width"),
    weight=normal("8, 1, 3, 1", std=0.58),
    workloads=[{"name": "full", "batch": 64, "height": 512, "width": 512}],
    precision="fp32",
)
def conv2d_depthwise_3x1(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight, groups=8)
