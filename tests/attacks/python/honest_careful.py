"""Honest: tries a way that may not exist here and takes another one where it does not; times itself; prints."""

import sys
import time

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        start = time.perf_counter_ns()
        try:
            shifted = torch.ops.warpsmith_has_no_such.exp(x)
        except (AttributeError, RuntimeError):
            shifted = torch.exp(x - x.amax(dim=-1, keepdim=True))
        result = shifted / shifted.sum(dim=-1, keepdim=True)
        print(f"softmax took {time.perf_counter_ns() - start} ns", file=sys.stderr)
        return result
