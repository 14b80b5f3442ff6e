"""Starts a program in a session of its own while it is compiled (it mentions load_inline), and leaves it behind."""

import contextlib
import subprocess

import torch
from torch import nn

with contextlib.suppress(OSError):
    subprocess.Popen(["sh", "-c", "sleep 73137 & sleep 73137"], start_new_session=True)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)
