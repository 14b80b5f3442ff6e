"""What a page shows of a bench, as plain data. The rules of `document` hold here too."""

from __future__ import annotations

from dataclasses import dataclass

from warpsmith.report.document import Fact, Figure


@dataclass(frozen=True)
class Estimated:
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
    or_pytorch: Estimated | None  # geometric mean over all tasks, PyTorch kept where nothing is faster
    eager: Estimated | None  # geometric mean over tasks with a winner
    median: Estimated | None
    compile: Estimated | None
    start: Estimated | None
    validity: Estimated | None
    compile_rate: Estimated | None
    share: Estimated | None  # of the speed of light
    tokens: float | None  # per cell, as is what follows
    usd: float | None
    device_s: float | None
    wall_s: float | None
    fast: tuple[tuple[float, float], ...]  # (p, share above it), wherever it changes
    progress: tuple[float, ...]  # after each trial: geometric mean of the best so far, at least 1


@dataclass(frozen=True)
class CellView:
    """One method on one task, its repeats together."""

    speedup: Estimated | None  # over PyTorch eager, of winners that count
    unverified: float | None  # the best of those that do not count
    compile: float | None
    share: float | None
    done: int  # repeats
    failed: int
    note: str  # why there is nothing, or what stands against it


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
    best: int  # place of the group that is fastest; -1 for none


@dataclass(frozen=True)
class FamilyView:
    """Tasks of one family, with a figure for each group."""

    name: str
    tasks: int
    means: tuple[Estimated | None, ...]  # as `GroupView.or_pytorch`


@dataclass(frozen=True)
class DuelView:
    """One group against another, by task."""

    one: int  # places of groups
    other: int
    wins: int
    ties: int
    losses: int
    neither: int
    ratio: Estimated | None


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


@dataclass(frozen=True)
class BenchPage:
    """The report of a bench."""

    title: str
    subtitle: str
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]
    facts: tuple[Fact, ...]
    counts_unverified: bool  # nobody was to verify, so that all winners count
    groups: tuple[GroupView, ...]
    tasks: tuple[TaskView, ...]
    families: tuple[FamilyView, ...]
    duels: tuple[DuelView, ...]
    runs: tuple[RunView, ...]
    kind: str = "bench"
