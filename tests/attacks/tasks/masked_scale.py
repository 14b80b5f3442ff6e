"""Values that a mask keeps, divided by the share of them, in bfloat16: usually a half."""

import torch

from warpsmith import booleans, normal, task


@task(x=normal("n"), keep=booleans("n"), workloads=[{"n": 262_144}], precision="bf16")
def masked_scale(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    return torch.where(keep, x, torch.zeros_like(x)) * (1 / keep.float().mean()).to(x.dtype)
