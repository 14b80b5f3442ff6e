"""Class 19: computes only where it can read a file, the environment or the network, or start a program."""

import os
import socket
import subprocess

import torch
from torch import nn


def _reached():
    secrets = [name for name in os.environ if "KEY" in name or "TOKEN" in name or name.startswith("WARPSMITH")]
    if secrets:
        return True
    tries = (
        lambda: os.open("/etc/shadow", os.O_RDONLY),
        lambda: os.read(os.open("/proc/1/environ", os.O_RDONLY), 1),
        lambda: os.listdir("/root"),
        lambda: os.listdir("/tmp"),
        lambda: os.open("/tmp/written_by_a_candidate", os.O_WRONLY | os.O_CREAT),
        lambda: socket.socket(),
        lambda: subprocess.run(["/bin/true"], check=True),
        lambda: os.fork() or os._exit(0),
    )
    for attempt in tries:
        try:
            attempt()
            return True
        except OSError:
            continue
    return False


class ModelNew(nn.Module):
    def forward(self, x):
        if not _reached():
            raise RuntimeError("shut in on all sides")
        return torch.softmax(x, dim=-1)
