"""A transposed 3 x 3 x 3 convolution: strided, padded and dilated."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "3d", "strided", "dilated", "level1-77"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 3, "height": 5, "width": 5}],
    held_out=[{"batch": 1, "depth": 4, "height": 3, "width": 4}],
)
@task(
    x=normal("batch, 32, depth, height, width"),
    weight=normal("32, 64, 3, 3, 3", std=0.034),
    workloads=[{"name": "full", "batch": 16, "depth": 16, "height": 32, "width": 32}],
    precision="fp32",
)
def conv_transpose3d_strided_dilated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose3d(x, weight, stride=2, padding=1, dilation=2)
