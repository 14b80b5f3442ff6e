"""Honest: keeps a scratch tensor per shape from one call to the next, and returns a fresh result."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scratch = {}

    def forward(self, x):
        scratch = self.scratch.setdefault(tuple(x.shape), torch.empty_like(x))
        torch.sub(x, x.amax(dim=-1, keepdim=True), out=scratch)
        scratch.exp_()
        return scratch / scratch.sum(dim=-1, keepdim=True)
