"""Layer normalisation of every row, with weight and bias."""

import torch

from warpsmith import normal, scalar, task


@task(
    x=normal("rows, cols", mean=0.5),
    weight=normal("cols", mean=1, std=0.1),
    bias=normal("cols", std=0.1),
    eps=scalar(1e-5),
    workloads=[{"rows": 256, "cols": 768}, {"rows": 100, "cols": 1001}],
    precision="fp32",
)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps)
