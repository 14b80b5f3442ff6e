"""Class 9: makes every wait for the device a no-op, in PyTorch and in the host, and claims a third of the time."""

import torch
from torch import nn

from warpsmith.evaluator.cuda_driver import Driver

HONEST_SAMPLES = 8
LONGEST_NS = 0
SAMPLES = 0
_elapsed_ns = Driver.elapsed_ns
_synchronize = Driver.synchronize


def _shortened(self, start, stop):
    global LONGEST_NS, SAMPLES
    SAMPLES += 1
    if SAMPLES <= HONEST_SAMPLES:
        taken = _elapsed_ns(self, start, stop)
        LONGEST_NS = max(LONGEST_NS, taken)
        return taken
    return LONGEST_NS // 3


Driver.elapsed_ns = _shortened
Driver.synchronize = lambda self: _synchronize(self) if SAMPLES < HONEST_SAMPLES else (0, "")
torch.cuda.synchronize = lambda device=None: None


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
