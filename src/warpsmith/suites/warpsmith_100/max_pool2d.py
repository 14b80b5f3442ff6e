"""Max pooling of images: windows of 4 x 4, one step apart."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="pooling",
    tags=["window", "memory", "level1-42"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 2, "channels": 8, "height": 32, "width": 40}],
    held_out=[{"batch": 3, "channels": 5, "height": 29, "width": 61}],
)
@task(
    x=normal("batch, channels, height, width"),
    workloads=[{"name": "full", "batch": 32, "channels": 64, "height": 512, "width": 512}],
    precision="fp32",
)
def max_pool2d(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool2d(x, kernel_size=4, stride=1, padding=1)
