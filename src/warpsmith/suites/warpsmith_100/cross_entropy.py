"""The mean cross-entropy of logits against labels."""

import torch

from warpsmith import integers, listed, normal, task


@listed(
    family="loss",
    tags=["scalar-result", "memory", "level1-95"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 64, "classes": 500}],
    held_out=[{"rows": 61, "classes": 1001}, {"rows": 200, "classes": 10}],
)
@task(
    predictions=normal("rows, classes"),
    targets=integers("rows", high="classes"),
    workloads=[{"name": "full", "rows": 32_768, "classes": 4096}],
    precision="fp32",
)
def cross_entropy(predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(predictions, targets)
