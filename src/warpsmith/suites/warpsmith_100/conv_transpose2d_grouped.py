"""A transposed 3 x 5 convolution in four groups: strided, padded and dilated."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "2d", "grouped", "strided", "dilated", "level1-75"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 8, "width": 12}],
    held_out=[{"batch": 1, "height": 7, "width": 9}],
)
@task(
    x=normal("batch, 32, height, width"),
    weight=normal("32, 16, 3, 5", std=0.091),
    workloads=[{"name": "full", "batch": 16, "height": 128, "width": 256}],
    precision="fp32",
)
def conv_transpose2d_grouped(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose2d(x, weight, stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=4)
