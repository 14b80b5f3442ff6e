"""Max pooling of series: windows of eight, three apart within."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="pooling",
    tags=["window", "memory", "level1-41"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 2, "channels": 16, "length": 500}],
    held_out=[{"batch": 3, "channels": 7, "length": 1001}],
)
@task(
    x=normal("batch, channels, length"),
    workloads=[{"name": "full", "batch": 64, "channels": 192, "length": 65_536}],
    precision="fp32",
)
def max_pool1d(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool1d(x, kernel_size=8, stride=1, padding=4, dilation=3)
