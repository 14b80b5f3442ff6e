"""A KernelBench module that computes much with its weights, and little with its input."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 128))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(self.weight.exp()).sum(dim=1) / self.weight.square().sum(dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 64)]


def get_init_inputs() -> list[object]:
    return []
