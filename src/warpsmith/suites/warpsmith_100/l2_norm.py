"""Every row divided by its Euclidean length."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="normalisation",
    tags=["rows", "memory", "level1-39"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 999}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 130, "cols": 256}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 32_768, "cols": 65_535}],
    precision="fp32",
)
def l2_norm(x: torch.Tensor) -> torch.Tensor:
    lengths: torch.Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / lengths
