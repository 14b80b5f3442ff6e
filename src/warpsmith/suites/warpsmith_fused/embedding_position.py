"""A token's row of one table plus its position's row of another."""

import torch

from warpsmith import integers, listed, normal, task


@listed(
    family="fused",
    tags=["gather"],
    precisions=["fp32", "bf16"],
    small=[{"name": "small", "batch": 3, "length": 40, "vocabulary": 200, "width": 48}],
    held_out=[{"batch": 2, "length": 33, "vocabulary": 101, "width": 65}],
)
@task(
    tokens=integers("batch, length", high="vocabulary"),
    table=normal("vocabulary, width"),
    positions=normal("length, width"),
    workloads=[
        {"batch": 32, "length": 1024, "vocabulary": 50_257, "width": 768},
        {"batch": 4, "length": 2048, "vocabulary": 32_000, "width": 4096},
        {"batch": 256, "length": 128, "vocabulary": 30_522, "width": 1024},
    ],
    precision="fp32",
)
def embedding_position(tokens: torch.Tensor, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.embedding(tokens, table) + positions
