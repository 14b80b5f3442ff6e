"""Honest: softmax, one operator at a time, where the task allows PyTorch's."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        shifted = torch.exp(x - x.amax(dim=-1, keepdim=True))
        return shifted / shifted.sum(dim=-1, keepdim=True)
