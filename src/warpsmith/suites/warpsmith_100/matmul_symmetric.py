"""The product of two symmetric matrices."""

import torch

from warpsmith import custom, listed, task


def symmetric(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> torch.Tensor:
    half = torch.randn(shape, generator=generator, device=device)
    return (half + half.T) / 2


@listed(
    family="matmul",
    tags=["product", "structured", "level1-13"],
    precisions=["fp32", "tf32"],
    small=[{"name": "small", "n": 96}],
    held_out=[{"n": 127}, {"n": 200}],
)
@task(
    a=custom("n, n", symmetric),
    b=custom("n, n", symmetric),
    workloads=[{"name": "full", "n": 4096}],
    precision="fp32",
)
def matmul_symmetric(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
