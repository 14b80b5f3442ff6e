"""Digests of the texts that the form of convolutions writes: of the suites' tasks and of the sweep, CUDA and C++.

Verified kernels are recorded by their text, so that a change of a text has to be meant. `python -m
tests.collection.convolution_texts` writes the digests anew.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.sweep_entries import CONVOLUTIONS
from benchmarks.sweep_shapes import entries

from warpsmith.backends.source import backend_named
from warpsmith.kernels.forms import form_kernel
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.program import Program
from warpsmith.tasks.suites import SHIPPED, suite_tasks

FILE = Path(__file__).with_suffix(".json")


def digests() -> dict[str, str]:
    """By task and backend; a task of the sweep is known by its text, so that a changed one is another one."""
    return {f"{name} {backend}": _digest(program, backend) for name, program in _programs() for backend in _BACKENDS}


_BACKENDS = ("cuda", "cpu")


def _programs() -> Iterator[tuple[str, Program]]:
    for task in (task for suite in SHIPPED for task in suite_tasks(suite) if task.family == "convolution"):
        yield task.title, load_task(task.spec())
    with tempfile.TemporaryDirectory() as folder:
        for entry in (each for each in entries() if each.group == CONVOLUTIONS):
            file = Path(folder, f"{entry.name}.py")
            file.write_text(entry.text, encoding="utf-8")
            yield f"{entry.name} {_short(entry.text)}", load_task(file)


def _digest(program: Program, backend: str) -> str:
    found = form_kernel(program.task, backend_named(backend).contract(program.task), outline(program))
    return _short(found.source) if found else "none"


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    FILE.write_text(json.dumps(digests(), indent=0) + "\n", encoding="utf-8")
