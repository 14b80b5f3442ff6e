"""A transposed 3 x 5 x 7 convolution in four groups that doubles every extent."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "3d", "grouped", "strided", "level1-72"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 3, "height": 5, "width": 7}],
    held_out=[{"batch": 1, "depth": 4, "height": 3, "width": 5}],
)
@task(
    x=normal("batch, 32, depth, height, width"),
    weight=normal("32, 8, 3, 5, 7", std=0.035),
    workloads=[{"name": "full", "batch": 8, "depth": 12, "height": 24, "width": 48}],
    precision="fp32",
)
def conv_transpose3d_grouped(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose3d(x, weight, stride=2, padding=(1, 2, 3), output_padding=1, groups=4)
