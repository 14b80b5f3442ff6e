"""RMS normalisation of every row in half precision."""

import torch

from warpsmith import normal, scalar, task


@task(
    x=normal("rows, cols"),
    weight=normal("cols", mean=1, std=0.1),
    eps=scalar(1e-3),
    workloads=[{"rows": 128, "cols": 2048}, {"rows": 77, "cols": 1000}],
    precision="fp16",
)
def rms_norm_fp16(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight, eps)
