"""A causal depthwise convolution over time: each channel has a filter of its own."""

import torch

from warpsmith import normal, task


@task(
    x=normal("batch, channels, time"),
    weight=normal("channels, 1, 4"),
    workloads=[
        {"batch": 2, "channels": 128, "time": 1000},
        {"batch": 3, "channels": 33, "time": 515},
    ],
    precision="fp32",
)
def depthwise_conv1d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(x, (3, 0))
    return torch.nn.functional.conv1d(padded, weight, groups=weight.shape[0])
