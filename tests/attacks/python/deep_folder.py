"""Class 22: leaves a folder 1,200 levels deep behind, on which a recursive removal ends the harness."""

import os

import torch
from torch import nn


def _dig(levels):
    place = os.open(os.environ["TMPDIR"], os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        _dig(1200)

    def forward(self, x):
        return torch.softmax(x, dim=-1)
