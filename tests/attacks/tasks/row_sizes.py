"""The mean absolute value of each of a few long rows, in bfloat16."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 8, "cols": 65_536}], precision="bf16")
def row_sizes(x: torch.Tensor) -> torch.Tensor:
    return x.abs().mean(dim=1)
