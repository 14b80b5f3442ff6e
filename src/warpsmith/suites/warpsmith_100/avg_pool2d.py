"""Average pooling of images: windows of 11 x 11 side by side."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="pooling",
    tags=["window", "memory", "level1-45"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 4, "channels": 8, "height": 88, "width": 99}],
    held_out=[{"batch": 3, "channels": 5, "height": 61, "width": 127}],
)
@task(
    x=normal("batch, channels, height, width"),
    workloads=[{"name": "full", "batch": 16, "channels": 64, "height": 2048, "width": 2048}],
    precision="fp32",
)
def avg_pool2d(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool2d(x, kernel_size=11)
