"""Class 15: calls torch.exp and others inside a section that is recorded under the name of a copy."""

import torch
from torch import nn
from torch.profiler import record_function


class ModelNew(nn.Module):
    def forward(self, x):
        with torch._C._DisableTorchDispatch(), record_function("aten::copy_"):
            return torch.softmax(x, dim=-1)
