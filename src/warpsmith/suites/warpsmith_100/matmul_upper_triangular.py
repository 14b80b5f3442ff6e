"""The product of two upper triangular matrices, which is upper triangular too."""

import torch

from warpsmith import custom, listed, task


def upper(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> torch.Tensor:
    return torch.triu(torch.randn(shape, generator=generator, device=device))


@listed(
    family="matmul",
    tags=["product", "structured", "level1-14"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "n": 96}],
    held_out=[{"n": 127}, {"n": 200}],
)
@task(
    a=custom("n, n", upper),
    b=custom("n, n", upper),
    workloads=[{"name": "full", "n": 4096}],
    precision="fp32",
)
def matmul_upper_triangular(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.triu(a @ b)
