"""Two results of every row, where a candidate may use PyTorch's operators."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 200, "cols": 300}], returns="mean, peak", allow=["torch"])
def mean_and_peak(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.mean(dim=-1), x.amax(dim=-1)
