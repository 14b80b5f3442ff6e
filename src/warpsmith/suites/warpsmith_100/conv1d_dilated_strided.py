"""A convolution of long series whose taps lie four apart, every third result."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "1d", "dilated", "strided", "level1-76"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "length": 300}],
    held_out=[{"batch": 3, "length": 211}],
)
@task(
    x=normal("batch, 64, length"),
    weight=normal("128, 64, 3", std=0.072),
    workloads=[{"name": "full", "batch": 64, "length": 524_280}],
    precision="fp32",
)
def conv1d_dilated_strided(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv1d(x, weight, stride=3, dilation=4)
