"""A 3 x 3 convolution of large square images."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "level1-63"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 12, "width": 14}],
    held_out=[{"batch": 3, "height": 9, "width": 17}],
)
@task(
    x=normal("batch, 16, height, width"),
    weight=normal("128, 16, 3, 3", std=0.083),
    workloads=[{"name": "full", "batch": 16, "height": 1024, "width": 1024}],
    precision="fp32",
)
def conv2d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight)
