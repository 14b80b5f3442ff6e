"""A transposed 3 x 5 x 5 convolution of cubes."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "3d", "level1-68"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 4, "height": 6, "width": 6}],
    held_out=[{"batch": 1, "depth": 3, "height": 5, "width": 7}],
)
@task(
    x=normal("batch, 32, depth, height, width"),
    weight=normal("32, 64, 3, 5, 5", std=0.02),
    workloads=[{"name": "full", "batch": 16, "depth": 64, "height": 64, "width": 64}],
    precision="fp32",
)
def conv_transpose3d_3x5x5(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose3d(x, weight)
