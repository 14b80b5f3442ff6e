"""The products of two vectors of complex numbers, the second one conjugated."""

import torch

from warpsmith import normal, task


@task(
    a=normal("n", dtype="complex64"),
    b=normal("n", dtype="complex64"),
    workloads=[{"name": "even", "n": 1 << 18}, {"name": "odd", "n": 100_001}],
    precision="fp32",
)
def complex_multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a * b.conj()
