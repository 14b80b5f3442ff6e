"""A layer whose buffers are written by every call, in KernelBench form."""

import torch
from torch import nn

allow = ["torch"]


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.drop(self.norm(x))
        return result


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(256, 32)]


def get_init_inputs() -> list[int]:
    return [32]
