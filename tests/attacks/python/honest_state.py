"""Honest: the batch norm as one scale and one shift per column, from all of the module's state."""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.batch = nn.BatchNorm1d(features)
        self.layer = nn.LayerNorm(features)

    def forward(self, x):
        batch, layer = self.batch, self.layer
        scale = batch.weight * (batch.running_var + batch.eps).rsqrt()
        shifted = (x - batch.running_mean) * scale + batch.bias
        return F.layer_norm(shifted, layer.normalized_shape, layer.weight, layer.bias, layer.eps)
