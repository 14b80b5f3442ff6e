"""A 3 x 3 x 3 convolution of cubes."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "3d", "level1-54"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 10, "height": 10, "width": 10}],
    held_out=[{"batch": 1, "depth": 9, "height": 11, "width": 7}],
)
@task(
    x=normal("batch, 3, depth, height, width"),
    weight=normal("64, 3, 3, 3, 3", std=0.11),
    workloads=[{"name": "full", "batch": 16, "depth": 64, "height": 64, "width": 64}],
    precision="fp32",
)
def conv3d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv3d(x, weight)
