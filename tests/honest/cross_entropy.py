"""The mean cross-entropy of logits against labels: integer inputs, one number as the result."""

import torch

from warpsmith import integers, normal, task


@task(
    logits=normal("rows, classes"),
    labels=integers("rows", low=0, high="classes"),
    workloads=[{"rows": 256, "classes": 1000}, {"rows": 61, "classes": 4099}],
    precision="fp32",
)
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, labels)
