"""Class 10: the same through SystemExit, from a destructor and from the call."""

import sys

from torch import nn


class Leaving:
    def __del__(self):
        sys.exit(0)


class ModelNew(nn.Module):
    def forward(self, x):
        Leaving()
        sys.exit(0)
