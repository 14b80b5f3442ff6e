"""What a page shows of a run, as plain data: one typed document, written into the page as JSON and drawn there.

Everything a reader may see is named here. Long texts are numbers of `texts.Texts`. It holds no paths and nothing of
the environment: a report is for passing on. The documents of a bench are in `benchdocument`.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import Any

_DIGITS = 7  # of numbers with a fraction


@dataclass(frozen=True)
class Figure:
    """One figure of the headline."""

    value: str  # as it is printed: "3.42×"
    label: str
    note: str = ""


@dataclass(frozen=True)
class Fact:
    """What a reader should know first: a name and what it is."""

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
class Spent:
    """What the reply to one brief cost."""

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
class Spoken:
    """One message of a prompt."""

    role: str
    text: int


@dataclass(frozen=True)
class TrialView:
    """One candidate, or the reply that held none."""

    number: int
    id: str  # "" where no candidate could be read
    name: str
    status: str  # "ok", another value of `Status`, or "duplicate", "unreadable", "pending"
    operator: str
    move: str
    model: str
    parents: tuple[int, ...]
    repairs: int  # the trial it mends; 0 for none
    twin: int  # the trial it repeats; 0 for none
    free: bool  # it spent no trial: we made it of another one ourselves
    strategy: str
    speedup: float | None
    low: float | None
    high: float | None
    share: float | None  # of the speed of light, in the worst workload
    latency_ms: float | None  # in the largest workload
    effect: float | None  # over the best of its parents
    measured: int  # how often
    reason: int
    thought: int
    profile: int
    files: tuple[FileView, ...]
    defines: tuple[tuple[str, str], ...]
    shown: tuple[Fact, ...]  # of the brief: what its author was given besides the task
    prompt: tuple[Spoken, ...]
    reply: int
    spent: Spent | None
    at_s: float  # since the run began, when it was proposed
    workloads: tuple[WorkloadView, ...]
    resources: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class WordsView:
    """A reply that was no trial: strategies, what a kernel really does, notes."""

    brief: int
    operator: str
    outcome: str
    prompt: tuple[Spoken, ...]
    reply: int


@dataclass(frozen=True)
class Step:
    """A new best."""

    trial: int
    speedup: float


@dataclass(frozen=True)
class Account:
    """What had been used when so many trials were there."""

    trial: int
    seconds: float
    device_s: float
    tokens: int
    usd: float


@dataclass(frozen=True)
class RoofPoint:
    """A candidate under the roof, where it is drawn."""

    trial: int  # 0 for PyTorch
    x: float  # FLOP per byte, spread by the order of trials
    y: float  # FLOP a second
    parents: tuple[int, ...] = ()


@dataclass(frozen=True)
class RoofView:
    """The roofline picture."""

    title: str
    intensity: float  # of the workload, FLOP per byte
    bandwidth_bytes_s: float
    heights: tuple[tuple[str, float], ...]  # flat parts with their names, FLOP a second, the lower first
    slope_known: bool  # else the bandwidth is only what the floor tells: at least that
    x: tuple[float, float]
    y: tuple[float, float]
    points: tuple[RoofPoint, ...]
    undrawn: int  # candidates without a measurement


@dataclass(frozen=True)
class EffectView:
    """What a strategy has brought where it was added or taken away."""

    strategy: str
    factor: float
    count: int


@dataclass(frozen=True)
class TallyView:
    """Replies by who wrote them, or by what was asked."""

    name: str
    replies: int
    valid: int
    best: float | None
    tokens: int
    usd: float | None


@dataclass(frozen=True)
class RunPage:
    """The report of a run."""

    title: str
    subtitle: str
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]  # what must be known to read the figures rightly
    facts: tuple[Fact, ...]
    best: int  # trial; 0 for none
    light: float | None  # speedup at the speed of light
    steps: tuple[Step, ...]
    trials: tuple[TrialView, ...]
    words: tuple[WordsView, ...]
    accounts: tuple[Account, ...]
    roofline: RoofView | None
    effects: tuple[EffectView, ...]
    models: tuple[TallyView, ...]
    operators: tuple[TallyView, ...]
    notes: tuple[str, ...]
    kind: str = "run"


def to_json(page: Any) -> str:
    """A document as JSON: names of fields, numbers rounded to what can be seen, null for what is no number."""
    return json.dumps(plain(page), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """A document as JSON's own types."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return _rounded(value)
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _rounded(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    if value == int(value) and abs(value) < 1e15:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")
