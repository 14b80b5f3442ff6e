"""A transposed 3 x 7 convolution of square images."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "2d", "level1-65"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 12, "width": 12}],
    held_out=[{"batch": 1, "height": 9, "width": 11}],
)
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("64, 64, 3, 7", std=0.027),
    workloads=[{"name": "full", "batch": 8, "height": 512, "width": 512}],
    precision="fp32",
)
def conv_transpose2d_3x7(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose2d(x, weight)
