"""A convolution of long series, three taps."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "1d", "level1-67"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "length": 130}],
    held_out=[{"batch": 3, "length": 101}],
)
@task(
    x=normal("batch, 64, length"),
    weight=normal("128, 64, 3", std=0.072),
    workloads=[{"name": "full", "batch": 32, "length": 131_072}],
    precision="fp32",
)
def conv1d(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv1d(x, weight)
