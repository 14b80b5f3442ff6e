"""Causal attention of several heads with its four projections, without dropout."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="fused",
    tags=["product", "rows"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "batch": 1, "length": 48}],
    held_out=[{"batch": 3, "length": 33}],
)
@task(
    x=normal("batch, length, 256"),
    mix=normal("768, 256", std=0.06),
    out_mix=normal("256, 256", std=0.06),
    heads=scalar(4),
    workloads=[{"batch": 16, "length": 1024}, {"batch": 128, "length": 128}, {"batch": 2, "length": 4096}],
    precision="fp32",
)
def attention_block(x: torch.Tensor, mix: torch.Tensor, out_mix: torch.Tensor, heads: int) -> torch.Tensor:
    batch, length, width = x.shape
    q, k, v = (x @ mix.T).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return mixed.transpose(1, 2).reshape(batch, length, width) @ out_mix.T
