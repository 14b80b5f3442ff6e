"""The documents of report pages, of a run and of a bench: the page has them as JSON, and its script draws them.

Long texts are numbers of `page.Texts`. A document has no paths and nothing of the environment, because reports are
shared with others.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from warpsmith.evaluator.judge.timing.statistics import SpeedupClass
from warpsmith.model.text import printable

_DIGITS = 7  # of numbers with a fraction


@dataclass(frozen=True)
class Figure:
    """One figure of the headline."""

    value: str  # as printed: "3.42×"
    label: str
    note: str = ""
    verdict: SpeedupClass | None = None  # decides the colour; None for anything but a speedup


@dataclass(frozen=True)
class Fact:
    """A name and a value in the list of facts."""

    name: str
    value: str


@dataclass(frozen=True)
class WorkloadView:
    """A valid candidate on one workload."""

    name: str
    axes: str
    latency_ms: float
    baselines: tuple[tuple[str, float, float, float, float], ...]  # name, its ms, speedup, low, high
    share: float | None
    floor_ms: float
    error: float
    error_limit: float
    checks: int


@dataclass(frozen=True)
class ReplyCost:
    """The cost of the reply to one brief."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    usd: float | None  # None where the price is not known
    seconds: float


@dataclass(frozen=True)
class FileView:
    """One source file."""

    name: str
    text: int


@dataclass(frozen=True)
class MessageView:
    """One message of a prompt."""

    role: str
    text: int


@dataclass(frozen=True)
class TrialRow:
    """What charts and tables show of one candidate, or of a reply without one."""

    number: int
    id: str  # "" where no candidate could be read
    name: str
    status: str  # "ok", another value of `Status`, or "duplicate", "unreadable", "pending"
    operator: str
    model: str
    parents: tuple[int, ...]
    repairs: int  # the trial that it repairs; 0 for none
    free: bool  # made by tuning, so it does not count against the budget
    strategy: str
    speedup: float | None
    share: float | None  # of the roofline, in the worst workload
    latency_ms: float | None  # in the largest workload
    tokens: int  # of prompt and reply


@dataclass(frozen=True)
class TrialView(TrialRow):
    """One candidate in full, or a reply without one."""

    twin: int  # the trial of which it is a duplicate; 0 for none
    low: float | None
    high: float | None
    effect: float | None  # over the best of its parents
    measured: int  # the number of measurements
    reason: int
    thought: int
    profile: int
    files: tuple[FileView, ...]
    defines: tuple[tuple[str, str], ...]
    shown: tuple[Fact, ...]  # the contents of the brief besides the task
    prompt: tuple[MessageView, ...]
    reply: int
    spent: ReplyCost | None
    at_s: float  # since the run began, when it was proposed
    workloads: tuple[WorkloadView, ...]
    resources: tuple[str, ...]
    notes: tuple[str, ...]


T = TypeVar("T", bound=TrialRow, covariant=True)


@dataclass(frozen=True)
class OtherReply:
    """A reply that is no kernel: strategies, descriptions, notes."""

    brief: int
    operator: str
    outcome: str
    prompt: tuple[MessageView, ...]
    reply: int


@dataclass(frozen=True)
class NewBest:
    """A trial that became the best, and its speedup."""

    trial: int
    speedup: float


@dataclass(frozen=True)
class RunningTotals:
    """The time, tokens and cost of the run up to a trial."""

    trial: int
    seconds: float
    device_s: float
    tokens: int
    usd: float


@dataclass(frozen=True)
class RooflinePoint:
    """A candidate in the roofline picture."""

    trial: int  # 0 for PyTorch
    x: float  # FLOP per byte, spread by the order of trials
    y: float  # FLOP per second
    parents: tuple[int, ...] = ()


@dataclass(frozen=True)
class RooflineView:
    """The roofline picture."""

    title: str
    intensity: float  # of the workload, FLOP per byte
    bandwidth_bytes_s: float
    heights: tuple[tuple[str, float], ...]  # flat parts with their names, FLOP per second, the lowest first
    slope_known: bool  # False: the bandwidth is the least that the floor implies
    x: tuple[float, float]
    y: tuple[float, float]
    points: tuple[RooflinePoint, ...]
    undrawn: int  # candidates without a measurement


@dataclass(frozen=True)
class EffectView:
    """The measured effect of a strategy where it was added or removed."""

    strategy: str
    factor: float
    count: int


@dataclass(frozen=True)
class TallyView:
    """Counts of replies by model or by operator."""

    name: str
    replies: int
    valid: int
    best: float | None
    tokens: int
    usd: float | None


@dataclass(frozen=True)
class LimitView:
    """What a run has used of one of its limits."""

    name: str  # "trials", "time", "device time", "tokens" or "cost"
    used: float
    limit: float
    unit: str  # "", "s" or "usd"


@dataclass(frozen=True)
class OpenBrief:
    """A brief that a proposer works on."""

    brief: int
    operator: str
    since: int  # seconds since 1970
    shown: tuple[Fact, ...]
    prompt: tuple[MessageView, ...]


@dataclass(frozen=True)
class OpenTrial:
    """A trial that the evaluator works on, or that waits for the evaluator."""

    trial: int
    since: int  # seconds since 1970
    again: bool  # a second measurement


@dataclass(frozen=True)
class LiveView:
    """A run as it is now: what the page of a running process shows and a file does not."""

    run: str  # the name of the run in addresses of the server
    instance: str  # texts are numbered by one instance of the server
    seq: int  # of the last event in the page
    state: str  # "running", "idle" or "closed"
    words: str
    briefs: tuple[OpenBrief, ...]
    trials: tuple[OpenTrial, ...]
    at: int = 0  # the server's clock when the page was loaded, seconds since 1970


@dataclass(frozen=True)
class RunPage(Generic[T]):
    """The report of a run: a file has its trials in full, a server sends rows first."""

    title: str
    subtitle: str
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]  # sentences below the headline
    facts: tuple[Fact, ...]
    best: int  # trial; 0 for none
    roofline_speedup: float | None  # speedup of a kernel at the roofline
    steps: tuple[NewBest, ...]
    trials: tuple[T, ...]
    other_replies: tuple[OtherReply, ...]
    totals: tuple[RunningTotals, ...]
    roofline: RooflineView | None
    effects: tuple[EffectView, ...]
    models: tuple[TallyView, ...]
    operators: tuple[TallyView, ...]
    notes: tuple[str, ...]
    limits: tuple[LimitView, ...]
    live: LiveView | None = None
    kind: str = "run"


@dataclass(frozen=True)
class ProgressPoint:
    """A new best kernel, and what was spent by then."""

    trial: int
    seconds: float
    usd: float
    tokens: int
    speedup: float


@dataclass(frozen=True)
class RunRow:
    """One run in the list of runs."""

    run: str
    address: str
    task: str
    method: str
    proposer: str
    device: str
    state: str  # as in `LiveView`
    words: str
    trials: int
    budget: int
    valid: int
    settled: int
    best: float | None
    seconds: float
    usd: float | None  # None where a price is not known
    tokens: int
    began: int  # seconds since 1970
    curve: tuple[ProgressPoint, ...]


@dataclass(frozen=True)
class BenchRow:
    """One bench in the list of benches."""

    bench: str
    address: str
    done: int
    cells: int
    failed: int
    best: float | None
    words: str


@dataclass(frozen=True)
class RunsPage:
    """The runs and benches of a folder."""

    title: str
    subtitle: str
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]
    runs: tuple[RunRow, ...]
    benches: tuple[BenchRow, ...]
    kind: str = "runs"


def to_json(page: Any) -> str:
    """A document as JSON, with numbers rounded, and null for NaN and infinity."""
    return json.dumps(plain(page), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """A document in types of JSON; text in it is printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, float):
        return _rounded(value)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    names = _names(value.__class__)
    return value if names is None else {name: plain(getattr(value, name)) for name in names}


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of a data class; None for another type."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _rounded(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


@dataclass(frozen=True)
class EstimateView:
    """A figure with its 95 % interval, where it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class GroupView:
    """One method with one proposer: a row of the comparison."""

    name: str  # unique: the method, with the proposer where there are several
    method: str
    proposer: str
    cells: int
    done: int
    failed: int
    winners: int
    unverified: int
    or_pytorch: EstimateView | None  # geometric mean over all tasks, PyTorch kept where nothing is faster
    eager: EstimateView | None  # geometric mean over tasks with a winner
    median: EstimateView | None
    compile: EstimateView | None
    start: EstimateView | None
    validity: EstimateView | None
    compile_rate: EstimateView | None
    share: EstimateView | None  # of the roofline
    tokens: float | None  # per cell, like the next fields
    prompt_tokens: float | None  # of these; None in older results
    usd: float | None
    device_s: float | None
    wall_s: float | None
    fast: tuple[tuple[float, float], ...]  # (p, share with a speedup above p), at each change
    progress: tuple[float, ...]  # after each trial: geometric mean of the best so far, at least 1


@dataclass(frozen=True)
class CellView:
    """One method on one task, its repeats together."""

    speedup: EstimateView | None  # over PyTorch eager, of winners that count
    unverified: float | None  # the best speedup of winners that do not count
    compile: float | None
    share: float | None
    done: int  # repeats
    failed: int
    note: str  # why there is no winner, or why it does not count


@dataclass(frozen=True)
class TaskView:
    """A task, with a cell for each group."""

    name: str
    family: str
    zone: str
    precision: str
    floor_ms: float | None
    eager_ms: float | None
    compile_ms: float | None
    cells: tuple[CellView, ...]
    best: int  # index of the fastest group; -1 for none


@dataclass(frozen=True)
class FamilyView:
    """Tasks of one family, with a figure for each group."""

    name: str
    tasks: int
    means: tuple[EstimateView | None, ...]  # as `GroupView.or_pytorch`


@dataclass(frozen=True)
class DuelView:
    """One group against another, by task."""

    one: int  # indices of groups
    other: int
    wins: int
    ties: int
    losses: int
    neither: int
    ratio: EstimateView | None


@dataclass(frozen=True)
class RunView:
    """One run of the matrix."""

    task: str
    group: int
    seed: int
    status: str
    reason: str
    trials: int
    valid: int
    speedup: float | None
    low: float | None
    high: float | None
    verified: bool | None
    why_not: str
    candidate: str
    strategy: str
    tokens: int
    usd: float | None
    device_s: float
    report: str  # the address of its report, relative to this page; "" where there is none


@dataclass(frozen=True)
class PlainTableView:
    """A table whose cells are words."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True)
class BenchPage:
    """The report of a bench."""

    title: str
    subtitle: str
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]
    facts: tuple[Fact, ...]
    counts_unverified: bool  # the bench did not verify winners, so all of them count
    groups: tuple[GroupView, ...]
    tasks: tuple[TaskView, ...]
    families: tuple[FamilyView, ...]
    duels: tuple[DuelView, ...]
    runs: tuple[RunView, ...]
    tables: tuple[PlainTableView, ...] = ()
    kind: str = "bench"
