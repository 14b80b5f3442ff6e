"""Mean cross-entropy of logits against class labels: one number."""

import torch

from warpsmith import integers, normal, task


@task(
    logits=normal("rows, classes"),
    labels=integers("rows", high="classes"),
    workloads=[{"rows": 4096, "classes": 1024}, {"rows": 512, "classes": 32000}],
    returns="loss",
)
def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, labels)
