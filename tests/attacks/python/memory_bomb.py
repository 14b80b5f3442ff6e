"""Class 22: takes memory without end."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        hoard = []
        while True:
            hoard.append(torch.empty(1 << 28, device=x.device))
