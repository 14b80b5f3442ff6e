"""Rotary position embedding: the two halves of every head turned by an angle that depends on the position."""

import torch

from warpsmith import normal, task, uniform


@task(
    x=normal("positions, heads, 128"),
    cosine=uniform("positions, 64", low=-1, high=1),
    sine=uniform("positions, 64", low=-1, high=1),
    workloads=[{"positions": 256, "heads": 8}, {"positions": 127, "heads": 3}],
    precision="fp32",
)
def rotary(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    c, s = cosine[:, None], sine[:, None]
    return torch.cat((first * c - second * s, second * c + first * s), dim=-1)
