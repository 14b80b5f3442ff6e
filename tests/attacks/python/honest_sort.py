"""Honest: PyTorch's own sort, where the task allows it."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.sort(dim=-1).values
