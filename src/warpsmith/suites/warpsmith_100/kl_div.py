"""The mean divergence of two sets of distributions, one per row."""

import torch

from warpsmith import listed, probabilities, task


@listed(
    family="loss",
    tags=["scalar-result", "memory", "level1-98"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 500}],
    held_out=[{"rows": 61, "cols": 1001}, {"rows": 3, "cols": 4099}],
)
@task(
    predictions=probabilities("rows, cols"),
    targets=probabilities("rows, cols"),
    workloads=[{"name": "full", "rows": 16_384, "cols": 16_384}],
    precision="fp32",
)
def kl_div(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.kl_div(torch.log(predictions), targets, reduction="batchmean")
