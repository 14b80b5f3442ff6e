"""A linear layer and a ReLU in KernelBench form, where a candidate may use PyTorch's operators."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.gemm(x))


allow = ["torch"]

batch_size = 64
in_features = 128
out_features = 96


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(batch_size, in_features)]


def get_init_inputs() -> list[int]:
    return [in_features, out_features]
