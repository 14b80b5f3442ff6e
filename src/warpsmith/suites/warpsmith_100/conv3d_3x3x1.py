"""A convolution of volumes that looks at one slice of the last axis at a time."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "3d", "level1-59"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 12, "height": 14, "width": 6}],
    held_out=[{"batch": 1, "depth": 11, "height": 9, "width": 5}],
)
@task(
    x=normal("batch, 3, depth, height, width"),
    weight=normal("64, 3, 3, 3, 1", std=0.19),
    workloads=[{"name": "full", "batch": 16, "depth": 256, "height": 256, "width": 10}],
    precision="fp32",
)
def conv3d_3x3x1(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv3d(x, weight)
