"""A tensor divided by its Frobenius norm."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="normalisation",
    tags=["memory", "level1-37"],
    precisions=["fp32"],
    small=[{"name": "small", "batch": 3, "channels": 16, "height": 16, "width": 20}],
    held_out=[{"batch": 2, "channels": 64, "height": 13, "width": 17}],
)
@task(
    x=normal("batch, channels, height, width", mean=0.5),
    workloads=[{"name": "full", "batch": 112, "channels": 64, "height": 512, "width": 512}],
    precision="fp32",
)
def frobenius_norm(x: torch.Tensor) -> torch.Tensor:
    length: torch.Tensor = torch.linalg.vector_norm(x)
    return x / length
