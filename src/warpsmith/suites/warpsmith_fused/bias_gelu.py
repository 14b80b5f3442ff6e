"""A bias added to every row, then GELU: between the two products of a feed-forward layer."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="fused",
    tags=["elementwise"],
    precisions=["fp32", "bf16"],
    small=[{"name": "small", "rows": 50, "cols": 300}],
    held_out=[{"rows": 61, "cols": 1001}],
)
@task(
    x=normal("rows, cols"),
    bias=normal("cols", std=0.1),
    workloads=[{"rows": 8192, "cols": 4096}, {"rows": 2048, "cols": 16_384}, {"rows": 64, "cols": 11_008}],
    precision="fp32",
)
def bias_gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x + bias)
