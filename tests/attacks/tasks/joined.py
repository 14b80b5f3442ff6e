"""Two vectors of 8 MB one after the other: nothing but copies, which a kernel of the system can make too."""

import torch

from warpsmith import normal, task


@task(a=normal("n"), b=normal("n"), workloads=[{"n": 1 << 18}], precision="fp32")
def joined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.cat([a, b])
