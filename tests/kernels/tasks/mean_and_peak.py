"""Two results of every row: its mean and its largest element."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 200, "cols": 300}],
    precision="fp32",
    returns="mean, peak",
)
def mean_and_peak(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.mean(dim=-1), x.amax(dim=-1)
