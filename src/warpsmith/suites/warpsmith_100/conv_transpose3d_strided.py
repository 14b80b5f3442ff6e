"""A transposed 3 x 3 x 3 convolution, two steps apart and padded."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "3d", "strided", "level1-73"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 4, "height": 5, "width": 7}],
    held_out=[{"batch": 1, "depth": 3, "height": 4, "width": 5}],
)
@task(
    x=normal("batch, 32, depth, height, width"),
    weight=normal("32, 32, 3, 3, 3", std=0.034),
    workloads=[{"name": "full", "batch": 4, "depth": 32, "height": 64, "width": 128}],
    precision="fp32",
)
def conv_transpose3d_strided(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose3d(x, weight, stride=2, padding=1)
