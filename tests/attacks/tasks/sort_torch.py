"""Rows in ascending order: some milliseconds of a CPU, and far from any limit of the hardware."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 256, "cols": 1500}], precision="fp32", allow=["torch"])
def sort_torch(x: torch.Tensor) -> torch.Tensor:
    return x.sort(dim=-1).values
