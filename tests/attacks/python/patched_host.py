"""Class 9: replaces the host's own sampling: it claims a thirtieth of the time."""

from dataclasses import replace

from torch import nn

from warpsmith.evaluator.candidate import native_host
from warpsmith.evaluator.candidate.python_host import PythonCudaDevice


def _claiming(sample):
    def sample_less(self, calls, message, library):
        taken = sample(self, calls, message, library)
        return replace(taken, elapsed_ns=taken.elapsed_ns // 30)

    return sample_less


PythonCudaDevice.sample = _claiming(PythonCudaDevice.sample)
_made = native_host.CallsMade
native_host.CallsMade = lambda elapsed_ns, returned: _made(elapsed_ns // 30, returned)


class ModelNew(nn.Module):
    def forward(self, x):
        return x.sort(dim=-1).values
