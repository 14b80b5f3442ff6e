"""What a block adds to its input, and the normalised sum that the next block reads."""

import torch

from warpsmith import listed, normal, scalar, task


@listed(
    family="fused",
    tags=["rows"],
    precisions=["fp32", "bf16"],
    small=[{"name": "small", "rows": 50, "cols": 300}],
    held_out=[{"rows": 61, "cols": 1001}],
)
@task(
    x=normal("rows, cols"),
    residual=normal("rows, cols"),
    weight=normal("cols", mean=1, std=0.1),
    eps=scalar(1e-5),
    workloads=[{"rows": 4096, "cols": 4096}, {"rows": 16_384, "cols": 2048}, {"rows": 128, "cols": 8192}],
    precision="fp32",
    returns="y, total",
)
def residual_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    scale = torch.rsqrt(total.pow(2).mean(dim=-1, keepdim=True) + eps)
    return total * scale * weight, total
