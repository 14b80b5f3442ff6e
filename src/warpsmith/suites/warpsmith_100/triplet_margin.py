"""How much nearer an anchor is to its match than to a stranger, below a margin."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="loss",
    tags=["scalar-result", "memory", "level1-99"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "cols": 300}],
    held_out=[{"rows": 61, "cols": 1001}, {"rows": 3, "cols": 257}],
)
@task(
    anchor=normal("rows, cols"),
    positive=normal("rows, cols"),
    negative=normal("rows, cols"),
    margin=scalar(1.0),
    workloads=[{"name": "full", "rows": 32_768, "cols": 8192}],
    precision="fp32",
)
def triplet_margin(anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor, margin: float) -> torch.Tensor:
    return torch.nn.functional.triplet_margin_loss(anchor, positive, negative, margin=margin)
