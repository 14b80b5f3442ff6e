"""Honest: returns a view that is not contiguous; the values are right, and only they count."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.t().contiguous()
        shifted = torch.exp(columns - columns.amax(dim=0, keepdim=True))
        return (shifted / shifted.sum(dim=0, keepdim=True)).t()
