"""Queries and keys turned by the angle of their position."""

import torch

from warpsmith import listed, normal, task, uniform


@listed(
    family="fused",
    tags=["elementwise"],
    precisions=["fp32", "bf16"],
    small=[{"name": "small", "batch": 2, "heads": 3, "length": 40, "width": 32, "pairs": 16}],
    held_out=[{"batch": 1, "heads": 5, "length": 33, "width": 48, "pairs": 24}],
)
@task(
    q=normal("batch, heads, length, width"),
    k=normal("batch, heads, length, width"),
    angles=uniform("length, pairs", low=-3, high=3),
    workloads=[
        {"batch": 4, "heads": 32, "length": 2048, "width": 128, "pairs": 64},
        {"batch": 16, "heads": 16, "length": 1024, "width": 64, "pairs": 32},
        {"batch": 1, "heads": 32, "length": 8192, "width": 128, "pairs": 64},
    ],
    precision="fp32",
    returns="q_turned, k_turned",
)
def rotary_embedding(q: torch.Tensor, k: torch.Tensor, angles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    cosine = torch.cat((angles.cos(), angles.cos()), dim=-1)
    sine = torch.cat((angles.sin(), angles.sin()), dim=-1)
    turned = []
    for x in (q, k):
        first, second = x.chunk(2, dim=-1)
        turned.append(x * cosine + torch.cat((-second, first), dim=-1) * sine)
    return turned[0], turned[1]
