"""RMSNorm after a residual addition, as language models write it: PyTorch makes five passes over memory."""

import torch

from warpsmith import normal, scalar, task


@task(
    x=normal("rows, cols"),
    residual=normal("rows, cols"),
    weight=normal("cols", mean=1, std=0.1),
    eps=scalar(1e-5),
    workloads=[{"rows": 512, "cols": 1024}],
    precision="fp32",
    returns="y, total",
)
def residual_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    scale = torch.rsqrt(total.pow(2).mean(dim=-1, keepdim=True) + eps)
    return total * scale * weight, total
