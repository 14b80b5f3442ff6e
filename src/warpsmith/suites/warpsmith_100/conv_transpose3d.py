"""A transposed 3 x 3 x 3 convolution of cubes."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "3d", "level1-61"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 5, "height": 6, "width": 6}],
    held_out=[{"batch": 1, "depth": 3, "height": 5, "width": 7}],
)
@task(
    x=normal("batch, 48, depth, height, width"),
    weight=normal("48, 48, 3, 3, 3", std=0.028),
    workloads=[{"name": "full", "batch": 8, "depth": 64, "height": 64, "width": 64}],
    precision="fp32",
)
def conv_transpose3d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose3d(x, weight)
