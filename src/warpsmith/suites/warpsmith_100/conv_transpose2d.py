"""A transposed 3 x 3 convolution of large square images."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "2d", "level1-57"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 12, "width": 14}],
    held_out=[{"batch": 1, "height": 9, "width": 17}],
)
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("64, 64, 3, 3", std=0.042),
    workloads=[{"name": "full", "batch": 8, "height": 1024, "width": 1024}],
    precision="fp32",
)
def conv_transpose2d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose2d(x, weight)
