"""The mean absolute value of 131072 values, in bfloat16: of usual data all of its digits are known before."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 1 << 17}], precision="bf16")
def mean_size(x: torch.Tensor) -> torch.Tensor:
    return x.abs().mean()
