"""A transposed 3 x 3 convolution, results five steps apart: most receive few terms."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "2d", "strided", "dilated", "level1-81"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 6, "width": 8}],
    held_out=[{"batch": 1, "height": 5, "width": 7}],
)
@task(
    x=normal("batch, 32, height, width"),
    weight=normal("32, 64, 3, 3", std=0.059),
    workloads=[{"name": "full", "batch": 16, "height": 64, "width": 128}],
    precision="fp32",
)
def conv_transpose2d_strided_dilated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose2d(x, weight, stride=5, padding=1, dilation=2)
