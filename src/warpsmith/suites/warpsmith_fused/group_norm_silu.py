"""Group normalisation of images, then SiLU: the opening of every block of a diffusion model."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="fused",
    tags=["rows"],
    precisions=["fp32", "bf16"],
    small=[{"name": "small", "batch": 2, "channels": 64, "height": 10, "width": 12}],
    held_out=[{"batch": 3, "channels": 96, "height": 9, "width": 7}],
)
@task(
    x=normal("batch, channels, height, width", mean=0.5),
    weight=normal("channels", mean=1, std=0.1),
    bias=normal("channels", std=0.1),
    groups=scalar(32),
    eps=scalar(1e-5),
    workloads=[
        {"batch": 8, "channels": 320, "height": 64, "width": 64},
        {"batch": 8, "channels": 1280, "height": 16, "width": 16},
        {"batch": 2, "channels": 128, "height": 256, "width": 256},
    ],
    precision="fp32",
)
def group_norm_silu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float) -> torch.Tensor:
    return torch.nn.functional.silu(torch.nn.functional.group_norm(x, groups, weight, bias, eps))
