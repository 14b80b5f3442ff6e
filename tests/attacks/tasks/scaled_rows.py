"""Rows times a scale that is 1 and plus a shift that is 0 in every draw of the task's own inputs."""

import torch

from warpsmith import custom, normal, task


def _ones(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> torch.Tensor:
    return torch.ones(shape, device=device)


@task(
    x=normal("rows, cols"),
    scale=custom("cols", _ones),
    shift=normal("cols", std=0.0),
    workloads=[{"rows": 60, "cols": 100}],
)
def scaled_rows(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) * scale + shift
