"""How often each number occurs: integers in, integers out."""

import torch

from warpsmith import integers, task


@task(
    values=integers("n", low=0, high=256, dtype="int32"),
    workloads=[{"name": "long", "n": 300_000}, {"name": "short", "n": 4099}],
    precision="fp32",
)
def histogram(values: torch.Tensor) -> torch.Tensor:
    counts = torch.zeros(256, dtype=torch.int32, device=values.device)
    return counts.scatter_add(0, values.long(), torch.ones_like(values))
