"""A 3 x 5 x 7 convolution of flat volumes."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "3d", "level1-66"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "depth": 8, "height": 12, "width": 14}],
    held_out=[{"batch": 1, "depth": 7, "height": 11, "width": 13}],
)
@task(
    x=normal("batch, 3, depth, height, width"),
    weight=normal("64, 3, 3, 5, 7", std=0.056),
    workloads=[{"name": "full", "batch": 8, "depth": 16, "height": 128, "width": 128}],
    precision="fp32",
)
def conv3d_oblong_3x5x7(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv3d(x, weight)
