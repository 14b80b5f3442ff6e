"""Attention of a few heads: softmax(q k^T / sqrt(d)) v."""

import torch

from warpsmith import normal, task


@task(
    q=normal("heads, queries, 64"),
    k=normal("heads, keys, 64"),
    v=normal("heads, keys, 64"),
    workloads=[
        {"heads": 8, "queries": 128, "keys": 128},
        {"heads": 3, "queries": 65, "keys": 127},
    ],
    precision="fp32",
)
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = q @ k.transpose(1, 2) * 0.125
    return torch.softmax(scores, dim=-1) @ v
