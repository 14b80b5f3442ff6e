"""Task files written by a test, loaded like a user's."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from warpsmith.model.task import Precision
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

Load = Callable[..., Program]

NATIVE_HEAD = """
import torch
from warpsmith import booleans, custom, integers, normal, probabilities, scalar, task, uniform
"""
KERNELBENCH_HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
"""


@pytest.fixture
def native(tmp_path: Path) -> Load:
    """Load a native task from its text."""

    def load(text: str, precision: Precision | None = None, pick: str = "") -> Program:
        path = tmp_path / "mine.py"
        path.write_text(NATIVE_HEAD + textwrap.dedent(text))
        return load_task(f"{path}::{pick}" if pick else path, precision)

    return load


@pytest.fixture
def kernelbench(tmp_path: Path) -> Load:
    """Load a KernelBench problem from its text."""

    def load(text: str, precision: Precision | None = None) -> Program:
        path = tmp_path / "7_Problem.py"
        path.write_text(KERNELBENCH_HEAD + textwrap.dedent(text))
        return load_task(path, precision)

    return load
