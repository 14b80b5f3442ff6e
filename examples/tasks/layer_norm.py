"""Layer normalisation with scale and shift."""

import torch

from warpsmith import normal, scalar, task


@task(
    x=normal("rows, cols"),
    weight=normal("cols", mean=1.0, std=0.1),
    bias=normal("cols", std=0.1),
    eps=scalar(1e-5),
    workloads=[{"rows": 4096, "cols": 1024}, {"rows": 1024, "cols": 8192}],
)
def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)
