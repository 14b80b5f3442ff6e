"""Two linear layers, one of which gates the other: the feed-forward layer of recent models."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="fused",
    tags=["product"],
    precisions=["fp32", "tf32", "bf16"],
    small=[{"name": "small", "rows": 48, "cols": 128, "width": 96}],
    held_out=[{"rows": 33, "cols": 127, "width": 65}],
)
@task(
    x=normal("rows, cols"),
    gate=normal("width, cols", std=0.03),
    up=normal("width, cols", std=0.03),
    workloads=[
        {"rows": 2048, "cols": 4096, "width": 11_008},
        {"rows": 8192, "cols": 2048, "width": 5632},
        {"rows": 64, "cols": 4096, "width": 14_336},
    ],
    precision="fp32",
)
def swiglu(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(x @ gate.T) * (x @ up.T)
