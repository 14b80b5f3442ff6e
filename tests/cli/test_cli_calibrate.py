"""`warpsmith evaluate --calibrate` as a user runs it, and what people and programs are shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console
from tests.cli.here import run_here

from warpsmith.cli.evaluate import calibration_card
from warpsmith.cli.json_documents import calibrate_document, dumps
from warpsmith.hardware.device import Device
from warpsmith.model.build import DeviceKind
from warpsmith.model.certificate import Calibration, Impostor
from warpsmith.model.task import Precision, Task, TaskKind, TensorRole, TensorSpec, Workload

SUM_OF_SOFTMAX = """
import torch
from warpsmith import normal, task

@task(x=normal("rows, cols"), workloads=[{"rows": 32, "cols": 64}])
def sum_of_softmax(x):
    return torch.softmax(x, -1).sum(-1)
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The command in a folder with one bad task, with a cache of its own."""
    folder = tmp_path_factory.mktemp("calibrate")
    (folder / "bad.py").write_text(SUM_OF_SOFTMAX)
    environ = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    environ |= {"WARPSMITH_CACHE": str(folder / "cache"), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}
    environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[2] / "src")

    def command(*words: str, here: bool = False) -> subprocess.CompletedProcess[str]:
        if here:
            return subprocess.CompletedProcess(words, *run_here(folder, environ, "evaluate", *words))
        call = [sys.executable, "-m", "warpsmith", "evaluate", *words]
        return subprocess.run(call, cwd=folder, env=environ, capture_output=True, text=True, timeout=240)

    return command


@pytest.mark.slow
def test_a_task_that_is_fit_is_shown_with_every_impostor(run: Run, task_file: Callable[[str], Path]) -> None:
    done = run("--calibrate", str(task_file("mean_and_peak")))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("✓ calibrated")
    assert done.stdout.count("own/200x300") == 18  # nine in each output
    assert "no matrix products" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow  # a process of its own
def test_a_refused_task_is_one_document_and_status_1(run: Run) -> None:
    done = run("--calibrate", "--json", "bad.py")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["task"] == "sum_of_softmax"
    assert found["passed"] is False
    assert found["reason"].startswith("a kernel that writes 1 everywhere in out would pass sum_of_softmax: ")
    by_name = {each["name"]: each for each in found["impostors"]}
    assert by_name["zeros"]["caught_by"] == "own/32x64"
    assert by_name["zeros"]["share"] > 1000
    assert by_name["constant"]["applies"]
    assert by_name["constant"]["caught_by"] == ""
    assert 0 < found["baseline_share"] < 0.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bad.py",), "evaluate needs at least one kernel FILE"),
        (("--calibrate", "bad.py", "kernel.cpp"), "leave out kernel.cpp"),
        (("--calibrate", "missing.py"), "there is no task file missing.py"),
        (("--calibrate", "--device", "cuda", "bad.py"), "no NVIDIA GPU is visible"),
    ],
)
def test_mistakes_are_one_line(run: Run, words: tuple[str, ...], said: str) -> None:
    done = run(*words, here="cuda" not in words)  # a GPU that this process has seen cannot be hidden any more
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


TASK = Task(
    name="halves",
    source="",
    kind=TaskKind.NATIVE,
    tensors=(
        TensorSpec("x", "float32", (4,), TensorRole.INPUT),
        TensorSpec("y", "float32", (4,), TensorRole.OUTPUT),
        TensorSpec("index", "int64", (4,), TensorRole.OUTPUT),
    ),
    scalars=(),
    workloads=(Workload("default"),),
    precision=Precision.FP32,
    digest="0" * 64,
)
FOUND = Calibration(
    passed=False,
    reason="a kernel that only copies x to y would pass halves: nothing else shows; choose another operator.",
    impostors=(
        Impostor("zeros", "y", True, "own/default", 123456.0),
        Impostor("zeros", "index", True, "own/default"),
        Impostor("copy of x", "y", True, detail="nothing else shows"),
        Impostor("lower precision", "index", False, detail="whole numbers are exact"),
    ),
    baseline_share=0.0,
    reserve=("rare",),
    seconds=0.25,
)
DEVICE = Device(DeviceKind.CPU, 0, "a processor", "native", "cpu|a processor")


@pytest.mark.parametrize("width", [80, 120])
def test_people_see_what_passes_and_what_to_change(width: int) -> None:
    console = Console(width=width, record=True, color_system=None)
    console.print(calibration_card(TASK, FOUND, file="tasks/halves.py", device=DEVICE))
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    title, *rest = text.splitlines()
    assert title.split() == ["✗", "not", "calibrated", "tasks/halves.py", "halves,", "fp32"]
    assert "A kernel that only copies x to y would pass halves" in " ".join(text.split())
    rows = [line.split() for line in rest]
    assert ["✓", "zeros", "y", "own/default", "120000"] in rows
    assert ["✓", "zeros", "index", "own/default", "exact"] in rows
    assert ["✗", "copy", "of", "x", "y", "nothing:", "it", "passes"] in rows
    assert ["–", "lower", "precision", "index", "whole", "numbers", "are", "exact"] in rows
    assert "rare inputs, which this task needs" in text


def test_programs_get_the_same_in_one_line() -> None:
    line = dumps(calibrate_document(TASK, FOUND, file="tasks/halves.py", device="cpu"))
    found = json.loads(line)
    assert "\n" not in line
    assert found["reason"] == FOUND.reason
    assert found["impostors"] == [asdict(each) for each in FOUND.impostors]
    assert (found["passed"], found["reserve"], found["cached"]) == (False, ["rare"], False)
