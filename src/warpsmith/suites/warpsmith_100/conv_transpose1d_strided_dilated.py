"""A transposed convolution that doubles the length, taps two apart."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "1d", "dilated", "strided", "level1-79"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "length": 120}],
    held_out=[{"batch": 3, "length": 101}],
)
@task(
    x=normal("batch, 32, length"),
    weight=normal("32, 64, 3", std=0.1),
    workloads=[{"name": "full", "batch": 16, "length": 131_072}],
    precision="fp32",
)
def conv_transpose1d_strided_dilated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose1d(x, weight, stride=2, padding=1, dilation=2)
