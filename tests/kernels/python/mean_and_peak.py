from typing import NamedTuple

import torch
from torch import nn


class Both(NamedTuple):
    mean: torch.Tensor
    peak: torch.Tensor


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> Both:
        return Both(x.sum(dim=-1) / x.shape[-1], x.amax(dim=-1))
