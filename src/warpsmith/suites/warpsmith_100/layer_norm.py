"""Layer normalisation over the last three axes, with weight and bias."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="normalisation",
    tags=["rows", "memory", "level1-40"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 4, "channels": 8, "height": 16, "width": 20}],
    held_out=[
        {"batch": 3, "channels": 64, "height": 256, "width": 256},
        {"batch": 5, "channels": 7, "height": 11, "width": 13},
    ],
)
@task(
    x=normal("batch, channels, height, width", mean=0.5),
    weight=normal("channels, height, width", mean=1, std=0.1),
    bias=normal("channels, height, width", std=0.1),
    eps=scalar(1e-5),
    workloads=[{"name": "full", "batch": 16, "channels": 64, "height": 256, "width": 256}],
    precision="fp32",
)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
