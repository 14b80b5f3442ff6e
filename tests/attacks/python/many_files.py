"""Class 22: fills its folder with 30,000 empty files and closed folders, so that clearing up takes its time."""

import os

import torch
from torch import nn

os.chdir(os.environ["TMPDIR"])
for number in range(30_000):
    if number % 1000:
        os.close(os.open(f"{number}\n\udcff", os.O_WRONLY | os.O_CREAT, 0))
    else:
        os.mkdir(f"{number}", 0)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
