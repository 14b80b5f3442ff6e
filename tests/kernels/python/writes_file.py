"""Right, but tries to leave a file outside its own folder."""

import contextlib
from pathlib import Path

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for folder in ("/tmp", "/dev/shm", "/var/tmp"):
            with contextlib.suppress(OSError):
                Path(folder, "warpsmith-python-was-here").write_text("x")
        return torch.softmax(x, dim=-1)
