"""A mixture of all channels at every pixel: a convolution with one tap."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "level1-87"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 14, "width": 18}],
    held_out=[{"batch": 3, "height": 11, "width": 13}],
)
@task(
    x=normal("batch, 64, height, width"),
    weight=normal("128, 64, 1, 1", std=0.12),
    workloads=[{"name": "full", "batch": 16, "height": 1024, "width": 1024}],
    precision="fp32",
)
def conv2d_pointwise(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight)
