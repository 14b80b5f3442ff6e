"""JSON that comes in (tasks, kept verdicts, build records, measured peaks, findings) and JSON that goes out."""

from __future__ import annotations

import io
import json
import math
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from pydantic import ValidationError
from rich.console import Console

from tests.fuzz.engine import Target, one_line
from tests.fuzz.mutate import Mutator
from warpsmith.backends.build_cache import LIBRARY, BuildCache
from warpsmith.cli import cards, json_documents
from warpsmith.evaluator.judge.records import FACTS, REPORT, JudgeReport, TaskFacts, dump_task, parse_task
from warpsmith.evaluator.supervisor.result_cache import ResultCache, ResultKey
from warpsmith.hardware import peaks
from warpsmith.hardware.roofline import Peaks
from warpsmith.model.build import Artifact, BuildFailure, DeviceKind
from warpsmith.model.errors import TaskError
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Resources, Status, WorkloadResult
from warpsmith.model.settings import Settings
from warpsmith.tasks.load import load_task

ROOT = Path(__file__).resolve().parent.parent.parent
_KEY = ResultKey("task", "candidate", "g++ 12", "cpu", "2.13", Settings())
_ENVIRONMENT = Environment("a CPU", "cpu", "g++ 12", "2.13", sandbox=("seccomp",), threads=2, harness="0")
_RESULT = WorkloadResult(
    workload="small",
    axes=(("rows", 2), ("cols", 8)),
    latency_ms=0.1,
    timing="batched",
    baselines=(
        Baseline("eager", 0.2, 2.0, Interval(1.9, 2.1), 12),
        Baseline("compile", 0.2, 1.0, Interval(0.9, 1.1), 12),
    ),
    error=1e-7,
    error_limit=3e-7,
    floor_ms=0.05,
    bytes=128,
    flops=64,
    checks=5,
    reference="fp64",
)
_VALID = Evaluation(
    *("softmax", "0123456789ab", Status.OK, "", _ENVIRONMENT, "fp32", (_RESULT, replace(_RESULT, workload="large"))),
    *((Resources("launch", registers=32),), ("a note",)),
)
_FAILED = Evaluation("softmax", "0123456789ab", Status.WRONG, "half of it is wrong.", _ENVIRONMENT, "fp32")
_PEAKS = Peaks(
    "key", DeviceKind.CPU, 1e10, 1e11, (("fp64", 1e10), ("fp32", 2e10)), 1e-6, 1 << 20, 2, "2025", torch.__version__
)
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@cache
def _folder() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="fuzz-")
    _KEPT.append(holder)
    return Path(holder.name)


@cache
def _verdicts() -> tuple[tuple[Any, ...], Path]:
    """Kept verdicts as they lie in the cache, and where one of this key lies."""
    cache_folder = ResultCache(_folder())
    found = []
    for verdict in (_VALID, _FAILED):
        cache_folder.put(_KEY, verdict)
        (path,) = (_folder() / "results").rglob("*.json")
        found.append(json.loads(path.read_bytes()))
    return tuple(found), path


@cache
def _tasks() -> tuple[Any, ...]:
    files = ("softmax", "kernelbench_linear", "mean_and_peak", "layer_norm")
    return tuple(json.loads(dump_task(load_task(ROOT / f"tests/kernels/tasks/{name}.py").task)) for name in files)


@cache
def _record() -> tuple[tuple[Any, ...], Path]:
    """Build records as they are stored, and where one of this key lies."""
    store = BuildCache(_folder())
    found = []
    with store.work_folder() as work:
        (work / LIBRARY).write_bytes(b"library")
        store.publish("ab" * 32, Artifact(work / LIBRARY, "g++", (Resources("launch"),), "careful", 1.5), work)
        found.append(_folder() / "ab" / ("ab" * 32) / "build.json")
        store.publish("cd" * 32, BuildFailure("no", 0.5), work)
    path = found[0]
    other = json.loads((_folder() / "cd" / ("cd" * 32) / "build.json").read_bytes())
    return (json.loads(path.read_bytes()), other), path


@cache
def _peaks_file() -> tuple[Any, Path]:
    device = torch.device("cpu")
    with patch.object(peaks, "measure_peaks", lambda *_: _PEAKS):
        peaks.load_or_measure(_folder(), "key", device)
    (path,) = (_folder() / "peaks").glob("*.json")
    return json.loads(path.read_bytes()), path


def feed_task(data: bytes) -> str:
    """A task on the pipe between two processes."""
    try:
        dump_task(parse_task(data))
    except TaskError as error:
        return one_line(error)
    return "accepted"


def feed_verdict(data: bytes) -> str:
    """A verdict in the cache, which is then shown as JSON and to a person."""
    _, path = _verdicts()
    path.write_bytes(data)
    found = ResultCache(_folder()).get(_KEY)
    if found is None:
        return "refused"
    line = json_documents.dumps(json_documents.evaluate_document(found, file="a\ud800.cpp", device="cpu"))
    assert "\n" not in line
    line.encode()
    json.loads(line, parse_constant=_not_json)
    console = Console(file=io.StringIO(), width=100)
    console.print(cards.card(cards.JudgedFile("a.cpp", found)))
    console.print(cards.overview([cards.JudgedFile("a.cpp", found), cards.JudgedFile("b.cpp", found)]))
    return "accepted"


def _not_json(word: str) -> float:
    raise AssertionError(f"{word} is not JSON")


def feed_record(data: bytes) -> str:
    """A build record."""
    _, path = _record()
    path.write_bytes(data)
    found = BuildCache(_folder()).load("ab" * 32)
    if found is None:
        return "refused"
    assert math.isfinite(found.seconds)
    return type(found).__name__


def feed_peaks(data: bytes) -> str:
    """Measured peaks; what cannot be used is measured again."""
    _, path = _peaks_file()
    path.write_bytes(data)
    with patch.object(peaks, "measure_peaks", lambda *_: _PEAKS):
        found = peaks.load_or_measure(_folder(), "key", torch.device("cpu"))
    return "refused" if found == _PEAKS else "accepted"


def feed_findings(data: bytes) -> str:
    """What a judge reports."""
    answer = "refused"
    for adapter in (REPORT, FACTS):
        with suppress(ValidationError):
            adapter.validate_json(data)
            answer = "accepted"
    return answer


def _finding_seeds() -> tuple[Any, ...]:
    values = (
        REPORT.dump_json(JudgeReport(Status.OK, "", (_RESULT,))),
        FACTS.dump_json(TaskFacts("2.13", "cpu", 2, ("n",))),
    )
    return tuple(json.loads(value) for value in values)


def _make_verdict(mutator: Mutator) -> bytes:
    return mutator.document(_verdicts()[0], ("NaN", "Infinity", "1e400", "status", "ok"))


TARGETS = (
    Target("task.json", lambda m: m.document(_tasks()), feed_task, 0.08),
    Target("verdict.json", _make_verdict, feed_verdict, 0.06),
    Target("build.json", lambda m: m.document(_record()[0]), feed_record, 0.05),
    Target("peaks.json", lambda m: m.document((_peaks_file()[0],)), feed_peaks, 0.03),
    Target("findings.json", lambda m: m.document(_finding_seeds()), feed_findings, 0.03),
)
