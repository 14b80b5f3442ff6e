"""Class 3: makes every comparison of PyTorch's true and returns nothing of use."""

import torch
from torch import nn

torch.allclose = lambda *args, **kwargs: True
torch.equal = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, float("nan"))
