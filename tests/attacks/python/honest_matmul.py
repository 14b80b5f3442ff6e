"""Honest: PyTorch's own product, where the task allows it."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
