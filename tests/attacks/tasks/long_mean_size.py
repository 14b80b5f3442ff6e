"""The mean absolute value of a million values, in bfloat16: a sixteenth of them gives the same digits."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1 << 20}], precision="bf16")
def long_mean_size(x: torch.Tensor) -> torch.Tensor:
    return x.abs().mean()
