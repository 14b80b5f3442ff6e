"""Values around 1e25, the squares of which are too large for float32."""

import torch

from warpsmith import normal, task


@task(x=normal("n"), workloads=[{"n": 4000}], precision="fp32")
def huge(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * 1e25
