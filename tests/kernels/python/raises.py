import torch
from torch import nn


def checked(x: torch.Tensor) -> torch.Tensor:
    if x.dim() != 3:
        raise ValueError(f"expected three dimensions, got {x.dim()}")
    return x


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(checked(x), dim=-1)
