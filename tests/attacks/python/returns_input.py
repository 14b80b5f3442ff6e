"""Class 11: returns its input."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x
