"""The results of a bench, as plain data: one `Bench` that holds one `Cell` for each run of its matrix.

Results are derived, never kept by hand. The truth lies in the bench's folder, and `run.bench.folding` folds it:

    plan.json                     what was to be done: tasks, methods, proposers, repeats, budget (`run.bench.plan`)
    cells/TASK/METHOD--PROPOSER--SEED/
        run.db, best.*            an ordinary run: trials, verdicts, tokens, times and the best kernel come from its log
        failed.json               only where the cell could not be carried out: why
    winners/TASK/CANDIDATE/
        evaluation.json           the winner measured anew after the search, also against torch.compile where asked for
        certificate.json          what deep verification said of it
    results.json                  the fold, written after every cell: deleting it loses nothing

`results.json` alone can be published and read again: `read_results`. Statistics are the part of
`run.bench.statistics`; how they are shown, of `run.bench.tables` and of the report.

Names that join: `Cell.task` is `BenchTask.name`, `Cell.method` one of `Bench.methods`, `Cell.proposer` one of
`Bench.proposers`. Paths are relative to the bench's folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.archive.events import Budget
from warpsmith.core.errors import RunError
from warpsmith.core.evaluation import Interval
from warpsmith.core.inplace import put_in_place

FORMAT = 1
"""Raised when the meaning of a field changes."""

RESULTS = "results.json"


class CellStatus(StrEnum):
    """How far a cell has come."""

    DONE = "done"  # its search has ended as it should: a budget is spent, or the proposer has nothing (more) to try
    FAILED = "failed"  # it cannot be carried out; the reason says why
    UNFINISHED = "unfinished"  # to be begun, or to be gone on with


@dataclass(frozen=True)
class Speedup:
    """How many times as fast, with a 95 % interval."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high < math.inf:
            raise ValueError(f"no speedup: {self.low} <= {self.value} <= {self.high} does not hold")

    @property
    def interval(self) -> Interval:
        """As elsewhere."""
        return Interval(self.low, self.high)

    def over(self, other: Speedup) -> Speedup:
        """How many times as fast this is as the other, as measurements independent of each other."""
        below = math.hypot(math.log(self.value / self.low), math.log(other.high / other.value))
        above = math.hypot(math.log(self.high / self.value), math.log(other.value / other.low))
        value = self.value / other.value
        return Speedup(value, value * math.exp(-below), value * math.exp(above))


@dataclass(frozen=True)
class Best:
    """The winner of a cell."""

    candidate: str  # id
    trial: int
    file: str  # its source, written by the run; "" where it is not there
    strategy: str
    eager: Speedup  # over PyTorch eager, all workloads
    compile: Speedup | None  # over torch.compile; None where that was not measured
    start: Speedup | None  # over the run's first valid kernel; None where that was not measured to the end
    latency_ms: float  # geometric mean over the workloads, as is what follows
    share_of_floor: float  # of the speed of light
    remeasured: bool  # measured anew after the search; else the figures are the run's own, chosen as the highest
    verified: bool | None  # None while nobody has looked
    why_not: str = ""  # what stands against it, or why nobody looked; "" when verified

    def __post_init__(self) -> None:
        if bool(self.verified) == bool(self.why_not):
            raise ValueError("a winner is verified, or it is said why not")


@dataclass(frozen=True)
class CurvePoint:
    """The best so far rose."""

    trial: int  # trials spent by then
    speedup: float  # over PyTorch eager, as the run measured it


@dataclass(frozen=True)
class Cell:
    """One run of the matrix."""

    task: str
    method: str
    proposer: str
    seed: int
    status: CellStatus
    reason: str  # why it ended, failed, or is not finished: one phrase or sentence
    run: str  # its folder
    trials: int = 0
    valid: int = 0
    compiled: int = 0
    settled: int | None = None  # trials of which nothing was awaited at the end; None in older results: all of them
    best: Best | None = None
    tokens: int = 0
    usd: float | None = 0.0  # None where a price is not known
    device_seconds: float = 0.0  # building and judging
    wall_seconds: float = 0.0  # of the search, all sittings together; verification not counted
    curve: tuple[CurvePoint, ...] = ()
    device: str = ""  # for people; "" until it was begun

    @property
    def done(self) -> bool:
        """Whether it counts in statistics, with or without a winner."""
        return self.status is CellStatus.DONE

    @property
    def winner(self) -> Best | None:
        """The winner, where it counts: only what is verified does."""
        return self.best if self.done and self.best is not None and self.best.verified else None


@dataclass(frozen=True)
class BenchTask:
    """A task of the matrix. What only opening it tells is empty until one of its cells was begun."""

    name: str  # unique in the bench
    title: str  # what a user writes for it: "warpsmith-100/relu@small"
    family: str  # "" where its file does not say
    tags: tuple[str, ...] = ()
    precision: str = ""  # class it was judged in
    zone: str = ""  # what holds it back: memory, compute, middle, latency
    floor_ms: float | None = None  # speed of light, geometric mean over the workloads
    eager_ms: float | None = None  # PyTorch eager, measured with a winner; geometric mean over the workloads
    compile_ms: float | None = None  # torch.compile, the same


@dataclass(frozen=True)
class Versions:
    """With what it was measured; "" where that is not known yet."""

    warpsmith: str
    torch: str = ""
    compiler: str = ""
    driver: str = ""


@dataclass(frozen=True)
class Bench:
    """All of it."""

    id: str  # of the plan: the same plan has the same id
    name: str  # for people: what was asked for
    date: str  # when it was begun, ISO 8601, UTC
    versions: Versions
    devices: tuple[str, ...]  # for people: "NVIDIA H200 (cuda:0)"
    backend: str
    methods: tuple[str, ...]
    proposers: tuple[str, ...]
    tasks: tuple[BenchTask, ...]
    repeats: int
    seed: int  # of the first repeat; each later one adds 1
    budget: Budget  # of each cell
    verify: bool  # whether winners are verified
    cells: tuple[Cell, ...] = field(default=())  # by task, in it by seed, method and proposer
    format: int = FORMAT

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """What is compared: every method with every proposer."""
        return tuple((method, proposer) for method in self.methods for proposer in self.proposers)

    def of_group(self, method: str, proposer: str) -> Iterator[Cell]:
        """The cells of one of them."""
        return (cell for cell in self.cells if (cell.method, cell.proposer) == (method, proposer))

    def of_task(self, task: str) -> Iterator[Cell]:
        """The cells of one task."""
        return (cell for cell in self.cells if cell.task == task)

    def count(self, status: CellStatus) -> int:
        """How many cells have come that far."""
        return sum(cell.status is status for cell in self.cells)


_BENCH = TypeAdapter(Bench)


def dump_results(bench: Bench) -> str:
    """As JSON; numbers are finite or null."""
    return _BENCH.dump_json(bench, indent=1).decode() + "\n"


def load_results(text: str | bytes, origin: str = "the results") -> Bench:
    """From JSON; a RunError where it is none, or of another release."""
    try:
        bench = _BENCH.validate_json(text)
    except ValidationError as wrong:
        where = ".".join(str(part) for part in wrong.errors()[0]["loc"]) or "its beginning"
        raise RunError(f"{origin} cannot be read as results of a bench (at {where}); name a bench's folder.") from None
    if bench.format != FORMAT:
        raise RunError(f"{origin} is of another release (format {bench.format}, not {FORMAT}); fold its folder again.")
    return bench


def write_results(bench: Bench, path: Path) -> None:
    """Put them in place in one step."""
    try:
        put_in_place(path, dump_results(bench).encode(), mode=0o644)
    except OSError as refused:
        raise RunError(f"{path} cannot be written ({refused.strerror}); free some space and resume.") from None


def read_results(path: Path) -> Bench:
    """From a file as it was published."""
    try:
        text = path.read_bytes()
    except OSError as refused:
        raise RunError(f"{path} cannot be read ({refused.strerror}); name a bench's folder or its results.") from None
    return load_results(text, str(path))
