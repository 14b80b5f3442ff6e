"""A transposed 3 x 5 x 7 convolution of volumes longer with each axis."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "3d", "level1-58"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 4, "height": 6, "width": 8}],
    held_out=[{"batch": 1, "depth": 3, "height": 5, "width": 7}],
)
@task(
    x=normal("batch, 32, depth, height, width"),
    weight=normal("32, 16, 3, 5, 7", std=0.017),
    workloads=[{"name": "full", "batch": 16, "depth": 16, "height": 32, "width": 64}],
    precision="fp32",
)
def conv_transpose3d_oblong_3x5x7(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose3d(x, weight)
