"""Index of the largest value of each row."""

import torch

from warpsmith import normal, task


@task(
    x=normal("rows, cols"),
    workloads=[{"rows": 4096, "cols": 1024}, {"rows": 256, "cols": 32768}],
    returns="index",
)
def argmax(x: torch.Tensor) -> torch.Tensor:
    return torch.argmax(x, dim=-1)
