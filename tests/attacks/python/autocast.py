"""Class 12: lets autocast lower the precision of a product."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        with torch.autocast(a.device.type, dtype=torch.bfloat16):
            return (a @ b).float()
