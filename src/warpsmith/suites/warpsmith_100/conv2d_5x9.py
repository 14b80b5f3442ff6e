"""A 5 x 9 convolution of square images."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "level1-62"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 14, "width": 18}],
    held_out=[{"batch": 1, "height": 13, "width": 19}],
)
@task(
    x=normal("batch, 32, height, width"),
    weight=normal("64, 32, 5, 9", std=0.026),
    workloads=[{"name": "full", "batch": 8, "height": 512, "width": 512}],
    precision="fp32",
)
def conv2d_5x9(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight)
