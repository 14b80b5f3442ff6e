"""The last two axes exchanged, as a copy."""

import torch

from warpsmith import normal, task


@task(
    x=normal("batch, rows, cols"),
    workloads=[{"batch": 2, "rows": 256, "cols": 512}, {"batch": 5, "rows": 127, "cols": 333}],
    precision="fp32",
)
def transpose(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous()
