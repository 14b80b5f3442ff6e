"""The lower triangle of a matrix times another matrix: half of the products are zero and may be left out."""

import torch

from warpsmith import normal, task


@task(
    a=normal("n, n"),
    b=normal("n, cols"),
    workloads=[{"n": 256, "cols": 128}, {"n": 191, "cols": 127}],
    precision="fp32",
)
def tril_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tril(a) @ b
