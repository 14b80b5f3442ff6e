"""Products of rows of values around 1: the results of calls whose inputs are moved a little differ by many powers of
ten."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols", mean=1.0, std=0.1), workloads=[{"rows": 8, "cols": 256}], precision="fp32")
def products(x: torch.Tensor) -> torch.Tensor:
    return x.prod(dim=-1)
