"""A transposed 3 x 5 convolution of images twice as wide as high."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "2d", "level1-69"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 8, "width": 14}],
    held_out=[{"batch": 1, "height": 7, "width": 11}],
)
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("64, 128, 3, 5", std=0.032),
    workloads=[{"name": "full", "batch": 64, "height": 128, "width": 256}],
    precision="fp32",
)
def conv_transpose2d_oblong_3x5(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose2d(x, weight)
