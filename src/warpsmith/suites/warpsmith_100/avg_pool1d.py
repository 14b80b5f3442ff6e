"""Average pooling of series: windows of eight, padding counted."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="pooling",
    tags=["window", "memory", "level1-44"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 2, "channels": 16, "length": 500}],
    held_out=[{"batch": 3, "channels": 7, "length": 1001}],
)
@task(
    x=normal("batch, channels, length"),
    workloads=[{"name": "full", "batch": 64, "channels": 128, "length": 65_536}],
    precision="fp32",
)
def avg_pool1d(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool1d(x, kernel_size=8, stride=1, padding=4)
