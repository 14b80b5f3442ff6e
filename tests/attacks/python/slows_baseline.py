"""Class 6: leaves work on the device whenever the host says that it is done, so that the baseline looks slow."""

import torch
from torch import nn

from warpsmith.evaluator.cuda_driver import Driver

OWN = torch.cuda.Stream()
WAITS = 0
_synchronize = Driver.synchronize


def _wait_and_disturb(self):
    global WAITS
    said = _synchronize(self)
    WAITS += 1
    if WAITS > 24:
        with torch.cuda.stream(OWN):
            torch.cuda._sleep(15_000_000)
    return said


Driver.synchronize = _wait_and_disturb


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a @ b
