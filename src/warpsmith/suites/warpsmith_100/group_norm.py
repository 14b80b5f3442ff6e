"""Group normalisation of images: eight groups of channels."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="normalisation",
    tags=["rows", "memory", "level1-35"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 3, "channels": 16, "height": 16, "width": 20}],
    held_out=[{"batch": 2, "channels": 64, "height": 13, "width": 17}],
)
@task(
    x=normal("batch, channels, height, width", mean=0.5),
    weight=normal("channels", mean=1, std=0.1),
    bias=normal("channels", std=0.1),
    groups=scalar(8),
    eps=scalar(1e-5),
    workloads=[{"name": "full", "batch": 112, "channels": 64, "height": 512, "width": 512}],
    precision="fp32",
)
def group_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return torch.nn.functional.group_norm(x, groups, weight, bias, eps)
