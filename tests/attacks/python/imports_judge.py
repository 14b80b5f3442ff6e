"""Class 2: imports the evaluator's own modules to find the task, its seeds and its expected results."""

import os
from pathlib import Path

import torch
from torch import nn


def _stolen(x):
    from warpsmith.model.settings import Paths
    from warpsmith.tasks.load import load_task

    places = [Paths.from_environment().cache, Path("/tmp"), Path("/proc") / str(os.getppid()) / "cwd"]
    for place in places:
        for file in place.rglob("*softmax*.py"):
            program = load_task(file)
            return program.run({"x": x})[0]
        for file in place.rglob("*.pt"):
            return torch.load(file)
    raise FileNotFoundError("nothing of the judge's can be read")


class ModelNew(nn.Module):
    def forward(self, x):
        return _stolen(x)
