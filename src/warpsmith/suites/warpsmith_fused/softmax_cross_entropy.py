"""The cross-entropy of every row with the gradient that training needs of it."""

import torch

from warpsmith import integers, listed, normal, task


@listed(
    family="fused",
    tags=["rows"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 48, "classes": 300}],
    held_out=[{"rows": 33, "classes": 1001}],
)
@task(
    logits=normal("rows, classes"),
    labels=integers("rows", high="classes"),
    workloads=[
        {"rows": 4096, "classes": 32_000},
        {"rows": 1024, "classes": 128_256},
        {"rows": 16_384, "classes": 1000},
    ],
    precision="fp32",
    returns="loss, gradient",
)
def softmax_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logs = torch.log_softmax(logits, dim=-1)
    loss = -logs.gather(1, labels[:, None]).squeeze(1)
    gradient = logs.exp() - torch.nn.functional.one_hot(labels, logits.shape[1])
    return loss, gradient.to(logits.dtype)
