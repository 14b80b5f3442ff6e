"""Class 15: PyTorch's own operator, in a module of its own."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
