"""Every row in rising order, and where each of its elements was."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 200, "cols": 512}, {"rows": 127, "cols": 1000}],
    precision="fp32",
    returns="ordered, places",
)
def sort_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    ordered, places = x.sort(dim=-1)
    return ordered, places
