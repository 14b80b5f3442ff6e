"""The records of the suites as data: what PyTorch takes for each task, what the catalogue found, which are fit to judge
by. No torch.

`suite_record`, `suite_best` and `suite_calibration` write them, `readme_table` and `--compare` read them. It measures
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from warpsmith.kernels.facts import MedianTime, PytorchTimes
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import UsageError
from warpsmith.system.files import put_in_place
from warpsmith.tasks.suites import SuiteTask

R = TypeVar("R")
_LEVEL1 = re.compile(r"level1-(\d+)")


@dataclass(frozen=True)
class Side:
    """One baseline on one workload."""

    name: str  # "eager" or "compile"
    precision: str
    median_ms: float
    low_ms: float  # of the 95 % interval of the median
    high_ms: float
    samples: int
    mode: str  # "graph" where the calls were replayed from a CUDA graph, "direct" where they were made one by one
    sets: int  # sets of buffers that one sample went through


@dataclass(frozen=True)
class Bound:
    """What the hardware allows one workload in one precision class."""

    precision: str
    floor_ms: float  # hardware limit
    zone: str  # a value of `hardware.roofline.Zone`


@dataclass(frozen=True)
class WorkloadFigures:
    """One workload."""

    workload: str
    axes: tuple[tuple[str, int], ...]
    bytes: int  # inputs read once, outputs written once
    flops: int
    bounds: tuple[Bound, ...]
    sides: tuple[Side, ...]
    missing: tuple[str, ...] = ()  # what could not be measured, and why

    def ms(self, name: str, precision: str) -> float | None:
        """The time of one baseline."""
        side = self.side(name, precision)
        return side.median_ms if side else None

    def side(self, name: str, precision: str) -> Side | None:
        """What is known of one baseline."""
        return next((side for side in self.sides if (side.name, side.precision) == (name, precision)), None)

    def bound(self, precision: str) -> Bound | None:
        """Floor and zone in one precision class."""
        return next((b for b in self.bounds if b.precision == precision), None)


@dataclass(frozen=True)
class TaskFigures:
    """One task."""

    task: str  # "warpsmith-100/relu"
    family: str
    level1: int | None  # the number of the published problem
    workloads: tuple[WorkloadFigures, ...]
    seconds: float  # that measuring it took
    failure: str = ""  # why nothing could be measured

    @property
    def name(self) -> str:
        """Without the suite."""
        return self.task.rpartition("/")[2]

    def pytorch(self, precision: str) -> PytorchTimes | None:
        """The times of both forms of PyTorch; None where one of them is missing in a workload."""
        times = [
            tuple(side for workload in self.workloads if (side := workload.side(name, precision)))
            for name in ("eager", "compile")
        ]
        if not self.workloads or any(len(each) != len(self.workloads) for each in times):
            return None
        eager, compiled = (
            tuple(MedianTime(side.median_ms, side.low_ms, side.high_ms) for side in each) for each in times
        )
        return PytorchTimes(eager, compiled)


@dataclass(frozen=True)
class SuiteRecord:
    """PyTorch on all tasks of the suites."""

    date: str
    device: str
    versions: dict[str, str]
    size: str  # "full" or "small"
    timing: str  # how it was done, in words
    bandwidth_bytes_s: float
    flops_s: dict[str, float]  # by precision
    seconds: float  # of all sittings together
    tasks: tuple[TaskFigures, ...] = ()


@dataclass(frozen=True)
class BestFigures:
    """What a short run of the catalogue found for one task."""

    task: str
    family: str
    method: str
    trials: int
    valid: int
    compiled: int
    seconds: float
    stopped: str
    speedup: float | None = None  # over eager, all workloads
    low: float | None = None  # of its 95 % interval
    high: float | None = None
    latency_ms: dict[str, float] = field(default_factory=dict)  # by workload
    share_of_floor: float | None = None  # in the workload that is farthest from it
    strategy: str = ""
    kernel: Candidate | None = None
    verified: bool | None = None  # None: nobody has tried, or a check could not be made and none failed
    objection: str = ""  # what stands against calling it verified
    verify_seconds: float = 0.0
    failure: str = ""  # why there was no run
    refused: dict[str, str] = field(default_factory=dict)  # what became of the other trials: a reason for each status
    tried: dict[str, float] = field(default_factory=dict)  # the speedup of every valid strategy, as measured last

    @property
    def name(self) -> str:
        """Without the suite."""
        return self.task.rpartition("/")[2]


@dataclass(frozen=True)
class FitFigures:
    """Whether one task is fit to judge by at this size."""

    task: str
    family: str
    passed: bool
    reason: str = ""  # why it is refused
    caught: int = 0  # impostors, of those that apply
    weakest: tuple[str, float] | None = None  # the one that came nearest to passing, and its error ÷ limit
    untried: tuple[str, ...] = ()  # impostors for which there was no memory
    baseline_share: float | None = None  # the largest part of a limit that PyTorch's own results use
    reserve: tuple[str, ...] = ()  # input variants it needs besides the usual ones
    seconds: float = 0.0
    failure: str = ""  # why it could not be found out


@dataclass(frozen=True)
class FitRecord:
    """All tasks of the suites, calibrated."""

    date: str
    device: str
    versions: dict[str, str]
    size: str
    seconds: float  # of all sittings together
    tasks: tuple[FitFigures, ...] = ()


@dataclass(frozen=True)
class BestRecord:
    """What the catalogue found for the tasks whose families it covers."""

    date: str
    device: str
    versions: dict[str, str]
    size: str  # "full" or "small"
    precision: str
    seconds: float
    covered: int  # tasks that its templates can write a kernel for
    tasks: tuple[BestFigures, ...] = ()


_SUITE, _BEST, _FIT = TypeAdapter(SuiteRecord), TypeAdapter(BestRecord), TypeAdapter(FitRecord)


def read_suite(path: Path) -> SuiteRecord | None:
    """The record of PyTorch's times; None where there is none yet."""
    return _read(path, _SUITE)


def read_best(path: Path) -> BestRecord | None:
    """The record of what the catalogue found; None where there is none yet."""
    return _read(path, _BEST)


def read_fit(path: Path) -> FitRecord | None:
    """The record of calibrations; None where there is none yet."""
    return _read(path, _FIT)


def write(path: Path, record: SuiteRecord | BestRecord | FitRecord) -> None:
    """Put a record in place, whole or not at all; a line for each task, so that a change shows where it is."""
    document = TypeAdapter(type(record)).dump_python(record, mode="json")
    tasks = ",\n".join("  " + json.dumps(task, ensure_ascii=False) for task in document.pop("tasks"))
    head = json.dumps(document, indent=1, ensure_ascii=False).removesuffix("\n}")
    put_in_place(path, f'{head},\n "tasks": [\n{tasks}\n ]\n}}\n'.encode(), 0o644)


def _read(path: Path, adapter: TypeAdapter[R]) -> R | None:
    try:
        return adapter.validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as fault:
        raise UsageError(f"{path} is no such record ({fault.error_count()} faults); move it away.") from None


def level1(entry: SuiteTask) -> int | None:
    """The number of the published problem that a task is."""
    found = [match[1] for tag in entry.tags if (match := _LEVEL1.fullmatch(tag))]
    return int(found[0]) if found else None


def in_turn(entries: Iterable[SuiteTask]) -> list[SuiteTask]:
    """One of every family, then the next of every family: whatever is cut off, every family has been reached."""
    families: dict[str, list[SuiteTask]] = {}
    for entry in entries:
        families.setdefault(entry.family, []).append(entry)
    rounds = chain.from_iterable(zip_longest(*families.values()))
    return [entry for entry in rounds if entry is not None]


def chosen(entries: Sequence[SuiteTask], only: str) -> list[SuiteTask]:
    """Those tasks that a list of names, titles or families picks; all of them where it is empty."""
    words = [word for word in only.split(",") if word]
    known = {word for entry in entries for word in (entry.name, entry.title, entry.family)}
    for word in words:
        if word not in known:
            raise UsageError(f"no task or family of the suites is called {word!r}; see `warpsmith suite list`.")
    return [e for e in entries if not words or {e.name, e.title, e.family} & set(words)]
