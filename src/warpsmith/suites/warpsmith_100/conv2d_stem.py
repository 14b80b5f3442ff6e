"""The first layer of an image classifier: 11 x 11, four steps apart, with bias."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="convolution",
    tags=["direct", "2d", "level1-50"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "height": 31, "width": 35}],
    held_out=[{"batch": 3, "height": 47, "width": 39}],
)
@task(
    x=normal("batch, 3, height, width"),
    weight=normal("96, 3, 11, 11", std=0.052),
    bias=normal("96", std=0.1),
    workloads=[{"name": "full", "batch": 256, "height": 224, "width": 224}],
    precision="fp32",
)
def conv2d_stem(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.conv2d(x, weight, bias, stride=4, padding=2)
