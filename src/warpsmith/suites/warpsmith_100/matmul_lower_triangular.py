"""The product of two lower triangular matrices, which is lower triangular too."""

import torch

from warpsmith import custom, listed, task


def lower(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> torch.Tensor:
    return torch.tril(torch.randn(shape, generator=generator, device=device))


@listed(
    family="matmul",
    tags=["product", "structured", "level1-15"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "n": 96}],
    held_out=[{"n": 127}, {"n": 200}],
)
@task(
    a=custom("n, n", lower),
    b=custom("n, n", lower),
    workloads=[{"name": "full", "n": 4096}],
    precision="fp32",
)
def matmul_lower_triangular(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tril(a @ b)
