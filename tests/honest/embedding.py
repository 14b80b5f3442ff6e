"""Rows of a table, picked by number."""

import torch

from warpsmith import integers, normal, task


@task(
    table=normal("entries, width"),
    picks=integers("count", low=0, high="entries"),
    workloads=[
        {"entries": 4099, "width": 128, "count": 2000},
        {"entries": 127, "width": 65, "count": 999},
    ],
    precision="fp32",
)
def embedding(table: torch.Tensor, picks: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(picks, table)
