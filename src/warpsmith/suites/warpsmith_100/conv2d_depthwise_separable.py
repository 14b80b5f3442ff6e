"""A 3 x 3 filter for every channel, then a mixture of all channels at every pixel."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "depthwise", "chain", "level1-86"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 10, "width": 14}],
    held_out=[{"batch": 3, "height": 7, "width": 11}],
)
@task(
    x=normal("batch, 64, height, width"),
    depthwise=normal("64, 1, 3, 3", std=0.33),
    pointwise=normal("128, 64, 1, 1", std=0.12),
    workloads=[{"name": "full", "batch": 16, "height": 512, "width": 512}],
    precision="fp32",
)
def conv2d_depthwise_separable(x: torch.Tensor, depthwise: torch.Tensor, pointwise: torch.Tensor) -> torch.Tensor:
    filtered = torch.nn.functional.conv2d(x, depthwise, padding=1, groups=64)
    return torch.nn.functional.conv2d(filtered, pointwise)
