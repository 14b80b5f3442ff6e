"""Marks the starts of runs of five equal values: among usual values there are none."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), w=normal("n"), workloads=[{"n": 1 << 12}], precision="fp32")
def marked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    first, run = x[:-4], x[:-4] != 0
    for step in range(1, 5):
        run = run & (x[step : len(x) - 4 + step] == first)
    return torch.where(run, torch.exp(w[:-4]), torch.sigmoid(w[:-4]))
