"""Scaled dot-product attention with very wide heads."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="attention",
    tags=["product", "rows", "level1-97"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 2, "heads": 2, "length": 48, "width": 32}],
    held_out=[{"batch": 1, "heads": 3, "length": 33, "width": 64}, {"batch": 2, "heads": 1, "length": 65, "width": 24}],
)
@task(
    q=normal("batch, heads, length, width"),
    k=normal("batch, heads, length, width"),
    v=normal("batch, heads, length, width"),
    workloads=[{"name": "full", "batch": 32, "heads": 32, "length": 512, "width": 1024}],
    precision="fp32",
)
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
