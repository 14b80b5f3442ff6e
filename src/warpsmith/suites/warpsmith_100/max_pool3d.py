"""Max pooling of volumes: dilated windows of 3 x 3 x 3, two steps apart."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="pooling",
    tags=["window", "memory", "level1-43"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 2, "channels": 4, "depth": 32, "height": 32, "width": 36}],
    held_out=[{"batch": 3, "channels": 5, "depth": 13, "height": 17, "width": 23}],
)
@task(
    x=normal("batch, channels, depth, height, width"),
    workloads=[{"name": "full", "batch": 16, "channels": 32, "depth": 128, "height": 128, "width": 128}],
    precision="fp32",
)
def max_pool3d(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool3d(x, kernel_size=3, stride=2, padding=1, dilation=3)
