"""Honest: eight products where one would do, each when it is due."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        for _ in range(8):
            out = torch.mm(a, b)
        return out
