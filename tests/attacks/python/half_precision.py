"""Class 12: computes in half precision in a task of the fp32 class."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x.to(torch.bfloat16), dim=-1).float()
