"""Matrix product. Judged as strict fp32; pass another precision class to allow TF32."""

import torch

from warpsmith import normal, task


@task(
    a=normal("m, k"),
    b=normal("k, n"),
    workloads=[
        {"name": "square", "m": 1024, "n": 1024, "k": 1024},
        {"name": "tall", "m": 4096, "n": 256, "k": 1024},
    ],
)
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
