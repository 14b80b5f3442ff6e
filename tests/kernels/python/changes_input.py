import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x -= x.amax(dim=-1, keepdim=True)
        return torch.softmax(x, dim=-1)
