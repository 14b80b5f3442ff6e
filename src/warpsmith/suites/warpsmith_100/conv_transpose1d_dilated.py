"""A transposed convolution of long series, five taps three apart."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "1d", "dilated", "level1-74"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "length": 200}],
    held_out=[{"batch": 3, "length": 101}],
)
@task(
    x=normal("batch, 32, length"),
    weight=normal("32, 64, 5", std=0.079),
    workloads=[{"name": "full", "batch": 32, "length": 131_072}],
    precision="fp32",
)
def conv_transpose1d_dilated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose1d(x, weight, dilation=3)
