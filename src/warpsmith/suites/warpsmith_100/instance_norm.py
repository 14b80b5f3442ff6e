"""Every channel of every image brought to mean zero and variance one."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="normalisation",
    tags=["rows", "memory", "level1-34"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 3, "channels": 16, "height": 16, "width": 20}],
    held_out=[{"batch": 2, "channels": 64, "height": 13, "width": 17}],
)
@task(
    x=normal("batch, channels, height, width", mean=0.5),
    eps=scalar(1e-5),
    workloads=[{"name": "full", "batch": 112, "channels": 64, "height": 512, "width": 512}],
    precision="fp32",
)
def instance_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.instance_norm(x, eps=eps)
