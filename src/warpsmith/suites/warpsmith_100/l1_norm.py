"""Every row divided by the mean magnitude of its elements."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="normalisation",
    tags=["rows", "memory", "level1-38"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 999}],
    held_out=[{"rows": 61, "cols": 4099}, {"rows": 130, "cols": 256}],
)
@task(
    x=normal("rows, cols"),
    workloads=[{"name": "full", "rows": 32_768, "cols": 65_535}],
    precision="fp32",
)
def l1_norm(x: torch.Tensor) -> torch.Tensor:
    return x / torch.mean(torch.abs(x), dim=1, keepdim=True)
