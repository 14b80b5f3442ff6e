"""The largest of a million values between 0 and 1: the largest of half of them differs in the last digit only."""

import torch

from warpsmith import task, uniform


@task(x=uniform("n"), workloads=[{"n": 1 << 20}], precision="fp32")
def largest(x: torch.Tensor) -> torch.Tensor:
    return x.amax()
