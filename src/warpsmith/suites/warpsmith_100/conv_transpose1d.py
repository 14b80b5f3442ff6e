"""A transposed convolution of long series, three taps."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["transposed", "1d", "level1-64"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "length": 64}],
    held_out=[{"batch": 3, "length": 51}],
)
@task(
    x=normal("batch, 128, length"),
    weight=normal("128, 128, 3", std=0.051),
    workloads=[{"name": "full", "batch": 64, "length": 65_536}],
    precision="fp32",
)
def conv_transpose1d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv_transpose1d(x, weight)
