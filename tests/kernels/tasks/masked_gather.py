"""Rows of a table picked by number, and zero where the mask says so: integer and bool inputs."""

import torch

from warpsmith import booleans, integers, normal, task


@task(
    table=normal("entries, width"),
    picks=integers("count", low=0, high="entries"),
    mask=booleans("count", p=0.7),
    workloads=[{"entries": 97, "width": 64, "count": 500}],
    precision="fp32",
)
def masked_gather(table: torch.Tensor, picks: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return table[picks] * mask[:, None]
