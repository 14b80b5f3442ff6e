"""A transposed 3 x 7 convolution, padded so that the image keeps its size."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "2d", "level1-78"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 12, "width": 22}],
    held_out=[{"batch": 1, "height": 9, "width": 17}],
)
@task(
    x=normal("batch, 32, height, width"),
    weight=normal("32, 32, 3, 7", std=0.039),
    workloads=[{"name": "full", "batch": 8, "height": 512, "width": 1024}],
    precision="fp32",
)
def conv_transpose2d_3x7_padded(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose2d(x, weight, padding=(1, 3))
