"""Batch normalisation with the statistics of the batch itself, as in training."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="normalisation",
    tags=["rows", "memory", "level1-33"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 3, "channels": 16, "height": 16, "width": 20}],
    held_out=[{"batch": 2, "channels": 64, "height": 13, "width": 17}],
)
@task(
    x=normal("batch, channels, height, width", mean=0.5),
    weight=normal("channels", mean=1, std=0.1),
    bias=normal("channels", std=0.1),
    eps=scalar(1e-5),
    workloads=[{"name": "full", "batch": 64, "channels": 64, "height": 512, "width": 512}],
    precision="fp32",
)
def batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
