import torch
from torch import nn

scale = torch.tensor([1.0, 2.0]).item()


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * scale, dim=-1)
