"""One step of Adam: new weights and both moments."""

import torch

from warpsmith import listed, normal, scalar, task, uniform


@listed(
    family="fused",
    tags=["elementwise"],
    precisions=["fp32"],
    small=[{"name": "small", "n": 10_000}],
    held_out=[{"n": 4099}],
)
@task(
    weight=normal("n"),
    gradient=normal("n"),
    first=normal("n", std=0.1),
    second=uniform("n", low=0.01, high=1),
    rate=scalar(1e-1),
    beta1=scalar(0.9),
    beta2=scalar(0.999),
    eps=scalar(1e-8),
    workloads=[{"name": "layer", "n": 16_777_216}, {"name": "model", "n": 134_217_728}, {"name": "bias", "n": 65_536}],
    precision="fp32",
    returns="new_weight, mean, spread",
)
def adam_step(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    rate: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean = beta1 * first + (1 - beta1) * gradient
    spread = beta2 * second + (1 - beta2) * gradient**2
    return weight - rate * mean / (spread.sqrt() + eps), mean, spread
