"""A task whose kernels here each launch in a way of their own."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1 << 20}, {"n": 1 << 16}], precision="fp32")
def affine(x: torch.Tensor) -> torch.Tensor:
    return 2.0 * x + 1.0
