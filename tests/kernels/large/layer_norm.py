"""Layer normalisation of 8192 rows of a transformer's width."""

import torch

from warpsmith import normal, scalar, task


@task(
    x=normal("rows, cols"),
    weight=normal("cols", mean=1, std=0.1),
    bias=normal("cols", std=0.1),
    eps=scalar(1e-5),
    workloads=[{"rows": 8192, "cols": 4096}],
    precision="fp32",
)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
