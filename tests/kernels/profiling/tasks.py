"""Tasks whose kernels here each have one planted bottleneck."""

import torch

from warpsmith import normal, task


@task(x=normal("rows, cols"), workloads=[{"rows": 4096, "cols": 4096}], precision="fp32")
def transpose(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


@task(x=normal("n"), workloads=[{"n": 1 << 24}], precision="fp32")
def doubled(x: torch.Tensor) -> torch.Tensor:  # as near to a copy as a task may come
    return 2.0 * x


@task(x=normal("n"), workloads=[{"n": 1 << 27}], precision="fp32")
def doubled_long(x: torch.Tensor) -> torch.Tensor:  # long enough that filling and draining the memory pipes is little
    return 2.0 * x


@task(matrix=normal("rows, cols"), vector=normal("cols"), workloads=[{"rows": 16384, "cols": 16384}], precision="fp32")
def gemv(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return matrix @ vector


@task(a=normal("n"), b=normal("n"), workloads=[{"n": 1024}], precision="fp32")
def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b
