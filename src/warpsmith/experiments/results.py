"""The results of a bench as plain data: one `BenchResults` with one `Cell` for each run.

Results are computed by `experiments.collect` from the folder of the bench:

    plan.json                     tasks, methods, proposers, repeats, budget (`experiments.plan`)
    cells/TASK/METHOD--PROPOSER--SEED/
        run.db, best.*            an ordinary run: trials, evaluations, tokens, times and the best kernel
        failed.json               only if the cell could not be run: the reason
    winners/TASK/CANDIDATE/
        evaluation.json           the best kernel measured again after the search, if asked for against torch.compile
        certificate.json          the result of its verification
    results.json                  the results, written after every cell: can be deleted and collected again

`results.json` alone can be published and read again (`read_results`). See `experiments.statistics` for the figures,
`experiments.tables` and the report for their presentation.

Names that join: `Cell.task` is `BenchTask.name`, `Cell.method` one of `BenchResults.methods`, `Cell.proposer` one of
`BenchResults.proposers`. Paths are relative to the bench's folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.model.errors import RunError
from warpsmith.model.evaluation import Interval
from warpsmith.run_log.events import Budget
from warpsmith.system.files import put_in_place, read_file

FORMAT = 1
"""Raised when the meaning of a field changes."""

RESULTS = "results.json"
_LEAST_RATIO = 1e-12  # of two times that somebody measured
_MOST_TRIALS = 1_000_000_000
_MOST_EPOCHS = 1000


class CellStatus(StrEnum):
    """The progress of a cell."""

    DONE = "done"  # the search ended normally: a budget is spent, or the proposer has nothing (more) to try
    FAILED = "failed"  # it cannot be run
    UNFINISHED = "unfinished"  # to be started or resumed


@dataclass(frozen=True)
class MeasuredSpeedup:
    """A speedup with a 95 % interval."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high < math.inf:
            raise ValueError(f"no speedup: {self.low} <= {self.value} <= {self.high} does not hold")

    @property
    def interval(self) -> Interval:
        """The interval alone."""
        return Interval(self.low, self.high)

    def over(self, other: MeasuredSpeedup) -> MeasuredSpeedup:
        """The ratio of two independent speedups."""
        below = math.hypot(math.log(self.value / self.low), math.log(other.high / other.value))
        above = math.hypot(math.log(self.high / self.value), math.log(other.value / other.low))
        value = self.value / other.value
        return MeasuredSpeedup(value, value * math.exp(-below), value * math.exp(above))


@dataclass(frozen=True)
class CellBest:
    """The best kernel of a cell."""

    candidate: str  # id
    trial: int
    file: str  # its source, written by the run; "" if missing
    strategy: str
    eager: MeasuredSpeedup  # over PyTorch eager, all workloads
    compile: MeasuredSpeedup | None  # over torch.compile; None where that was not measured
    start: (
        MeasuredSpeedup | None
    )  # over the starting kernel, else the first valid one; None where that was not measured to the end
    latency_ms: float  # geometric mean over the workloads, as is what follows
    share_of_floor: float  # of the hardware limit
    remeasured: bool  # measured again after the search; else the figures are the highest of the run
    verified: bool | None  # None if not verified yet
    why_not: str = ""  # why it is not verified; "" if it is

    def __post_init__(self) -> None:
        if bool(self.verified) == bool(self.why_not):
            raise ValueError("a best kernel is verified, or has a reason why not")
        for each in filter(None, (self.eager, self.compile, self.start)):
            if not _LEAST_RATIO <= each.low <= each.high <= 1 / _LEAST_RATIO:
                raise ValueError("no speedup that can be measured")


@dataclass(frozen=True)
class CurvePoint:
    """A new best kernel during the search."""

    trial: int  # trials spent by then
    speedup: float  # over PyTorch eager, as the run measured it
    tokens: int | None = None  # spent by then; None in older results
    epoch: int = 0  # stage of the method, from 1; 0 in older results

    def __post_init__(self) -> None:
        if not _LEAST_RATIO <= self.speedup <= 1 / _LEAST_RATIO or not 0 <= self.trial <= _MOST_TRIALS:
            raise ValueError("no point of a search")


@dataclass(frozen=True)
class RefusedKernel:
    """A kernel that the published rule calls valid and this evaluator refuses."""

    trial: int
    status: str  # a value of `Status`
    reason: str


@dataclass(frozen=True)
class Cell:
    """One run of the bench."""

    task: str
    method: str
    proposer: str
    seed: int
    status: CellStatus
    reason: str  # why it ended, failed, or is not finished
    run: str  # its folder
    trials: int = 0
    valid: int = 0
    compiled: int = 0
    settled: int | None = None  # trials with a result at the end; None in older results: all of them
    best: CellBest | None = None
    tokens: int = 0
    prompt_tokens: int | None = None  # of these; None in older results
    published_valid: int | None = None  # proposals that the published rule calls valid; None where it was not asked
    published_only: tuple[tuple[str, int], ...] = ()  # of these, the ones refused here: how many, by status
    refused: tuple[RefusedKernel, ...] = ()  # the same one by one; () in older results
    epochs: int = 1  # stages of the method
    usd: float | None = 0.0  # None where a price is not known
    device_seconds: float = 0.0  # building and judging
    wall_seconds: float = 0.0  # of the search, without verification
    curve: tuple[CurvePoint, ...] = ()
    device: str = ""  # for people; "" until it was started

    def __post_init__(self) -> None:
        if not 0 <= self.epochs <= _MOST_EPOCHS:
            raise ValueError("no number of epochs")

    @property
    def done(self) -> bool:
        """True if the cell counts in statistics, with or without a best kernel."""
        return self.status is CellStatus.DONE

    @property
    def winner(self) -> CellBest | None:
        """The best kernel, if it counts: only verified kernels do."""
        return self.best if self.done and self.best is not None and self.best.verified else None


@dataclass(frozen=True)
class BenchTask:
    """A task of the bench. Fields that need the task loaded are empty until one of its cells was started."""

    name: str  # unique in the bench
    title: str  # what a user writes for it: "warpsmith-100/relu@small"
    family: str  # "" where its file does not say
    tags: tuple[str, ...] = ()
    precision: str = ""  # class it was judged in
    zone: str = ""  # the limit of its speed: memory, compute, middle, latency
    floor_ms: float | None = None  # hardware limit, geometric mean over the workloads
    eager_ms: float | None = None  # PyTorch eager, measured with a best kernel; geometric mean over the workloads
    compile_ms: float | None = None  # torch.compile, the same
    calibrated: bool = True  # False: wrong results of some kind pass its checks
    product: bool = False  # True if it multiplies matrices
    flops: float | None = None  # operations, geometric mean over the workloads; None in older results, as what follows
    bytes: float | None = None  # inputs read once and outputs written once, the same
    peak_flops_s: float | None = None  # of the fastest arithmetic that its precision class permits on the device
    peak_bytes_s: float | None = None  # of the device's memory


@dataclass(frozen=True)
class Versions:
    """The versions used; "" if not known yet."""

    warpsmith: str
    torch: str = ""
    compiler: str = ""
    driver: str = ""


@dataclass(frozen=True)
class BenchResults:
    """The results of a bench."""

    id: str  # of the plan
    name: str  # for people
    date: str  # of its start, ISO 8601, UTC
    versions: Versions
    devices: tuple[str, ...]  # for people: "NVIDIA H200 (cuda:0)"
    backend: str
    methods: tuple[str, ...]
    proposers: tuple[str, ...]
    tasks: tuple[BenchTask, ...]
    repeats: int
    seed: int  # of the first repeat; each later one adds 1
    budget: Budget  # of each cell
    verify: bool  # True if best kernels are verified
    cells: tuple[Cell, ...] = field(default=())  # by task, seed, method and proposer
    as_published: str = ""  # the paper whose set-up this is
    differences: tuple[str, ...] = ()  # from the paper
    format: int = FORMAT

    def __post_init__(self) -> None:
        known = ({task.name for task in self.tasks}, set(self.methods), set(self.proposers))
        if list(map(len, known)) != [len(self.tasks), len(self.methods), len(self.proposers)]:
            raise ValueError("tasks, methods and proposers have names of their own")
        if not all(key in names for cell in self.cells for key, names in zip(_key(cell), known, strict=True)):
            raise ValueError("a cell belongs to a task, a method and a proposer of the bench")
        if not 0 <= self.budget.trials <= _MOST_TRIALS or not 0 < self.repeats <= _MOST_TRIALS:
            raise ValueError("no number of trials or repeats")

    @property
    def groups(self) -> tuple[tuple[str, str], ...]:
        """Every method with every proposer."""
        return tuple((method, proposer) for method in self.methods for proposer in self.proposers)

    def of_group(self, method: str, proposer: str) -> Iterator[Cell]:
        """The cells of one method with one proposer."""
        return (cell for cell in self.cells if (cell.method, cell.proposer) == (method, proposer))

    def of_task(self, task: str) -> Iterator[Cell]:
        """The cells of one task."""
        return (cell for cell in self.cells if cell.task == task)

    def count(self, status: CellStatus) -> int:
        """The number of cells with a status."""
        return sum(cell.status is status for cell in self.cells)


def _key(cell: Cell) -> tuple[str, str, str]:
    return cell.task, cell.method, cell.proposer


_BENCH = TypeAdapter(BenchResults)


def dump_results(bench: BenchResults) -> str:
    """As JSON; numbers are finite or null."""
    return _BENCH.dump_json(bench, indent=1).decode() + "\n"


def load_results(text: str | bytes, origin: str = "the results") -> BenchResults:
    """From JSON; a RunError if it is no result, or of another version."""
    try:
        bench = _BENCH.validate_json(text)
    except ValidationError as wrong:
        where = ".".join(str(part) for part in wrong.errors()[0]["loc"]) or "its beginning"
        raise RunError(f"{origin} cannot be read as results of a bench (at {where}); name a bench's folder.") from None
    if bench.format != FORMAT:
        raise RunError(
            f"{origin} is of another release (format {bench.format}, not {FORMAT}); collect it from its folder again."
        )
    return bench


def write_results(bench: BenchResults, path: Path) -> None:
    """Write results atomically."""
    try:
        put_in_place(path, dump_results(bench).encode(), mode=0o644)
    except OSError as refused:
        raise RunError(f"{path} cannot be written ({refused.strerror}); free some space and resume.") from None


def read_results(path: Path) -> BenchResults:
    """Read results from a file."""
    try:
        text = read_file(path)
    except OSError as refused:
        raise RunError(f"{path} cannot be read ({refused.strerror}); name a bench's folder or its results.") from None
    return load_results(text, str(path))
