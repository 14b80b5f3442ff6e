"""The gated activation of many transformers: silu(gate) * up."""

import torch

from warpsmith import normal, task


@task(
    gate=normal("tokens, hidden"),
    up=normal("tokens, hidden"),
    workloads=[{"tokens": 128, "hidden": 1408}, {"tokens": 31, "hidden": 1001}],
    precision="fp32",
)
def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up
