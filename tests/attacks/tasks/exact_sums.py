"""Sums of rows in double precision."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols", dtype="float64"), workloads=[{"rows": 50, "cols": 3000}], precision="fp64")
def exact_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=-1)
