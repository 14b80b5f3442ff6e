"""The certificate of a verified candidate and the calibration of a task. Impossible combinations cannot be built.

A certificate names every check of a verification, with its figures, and every check that could not be made. Only a
certificate may call a candidate verified. It is a record, not a signature: anybody who can write the file can forge it.
A calibration says whether results that are wrong on purpose fail a task's checks while PyTorch's own results pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from warpsmith.model.build import DeviceKind
from warpsmith.model.evaluation import Environment, Evaluation

FORMAT = 1
"""Raised when the meaning of a certificate changes."""

EVALUATION = "evaluation"
SEEDS = "fresh_seeds"
DISTRIBUTIONS = "distributions"
SHAPES = "shapes"
DETERMINISM = "determinism"
REMEASUREMENT = "remeasurement"
GUARDS = "guards"
ADDRESS = "address_sanitizer"
UNDEFINED = "undefined_behaviour"
DEVICE_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")

_COMMON = (EVALUATION, GUARDS, SEEDS, DISTRIBUTIONS, SHAPES, DETERMINISM)
_OF_DEVICE = {DeviceKind.CPU: (ADDRESS, UNDEFINED), DeviceKind.CUDA: DEVICE_TOOLS}

Figure = float | int | str


class CheckStatus(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"  # it should have been made and could not be: a tool is missing or broke
    NOT_APPLICABLE = "does_not_apply"  # there is nothing to check: no axis varies, no native code


@dataclass(frozen=True)
class CheckOutcome:
    """One check."""

    name: str
    outcome: CheckStatus
    detail: str = ""  # one sentence; needed unless it passed
    figures: tuple[tuple[str, Figure], ...] = ()
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a check needs a name")
        if self.outcome is not CheckStatus.PASSED and not self.detail:
            raise ValueError(f"check {self.name!r} ended as {self.outcome} and must say why")
        wrong = [name for name, value in self.figures if isinstance(value, float) and not math.isfinite(value)]
        if wrong:
            raise ValueError(f"figure {wrong[0]!r} of check {self.name!r} is not a finite number")


@dataclass(frozen=True)
class BaselineSpeedup:
    """A speedup over one baseline with its 95 % interval."""

    baseline: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """What the verified evaluation measured; geometric means over the workloads."""

    latency_ms: float
    speedups: tuple[BaselineSpeedup, ...]
    error: float  # with its limit: of the workload where it came nearest to the limit
    error_limit: float

    @staticmethod
    def of(evaluation: Evaluation) -> Measurement | None:
        """From a verdict; None where the candidate is not valid, or guards were left out."""
        if not evaluation.ok or evaluation.without:
            return None
        names = dict.fromkeys(b.name for w in evaluation.workloads for b in w.baselines)
        speedups = []
        for name in names:
            value, interval = evaluation.speedup(name), evaluation.interval(name)
            if value is not None and interval is not None:
                speedups.append(BaselineSpeedup(name, value, interval.low, interval.high))
        worst = max(evaluation.workloads, key=lambda w: w.error / w.error_limit if w.error_limit > 0 else 0.0)
        logs = [math.log(max(w.latency_ms, 1e-12)) for w in evaluation.workloads]
        return Measurement(math.exp(sum(logs) / len(logs)), tuple(speedups), worst.error, worst.error_limit)


@dataclass(frozen=True)
class Certificate:
    """The outcome of verifying one candidate of one task on one device."""

    task: str
    task_digest: str
    candidate: str  # its id
    candidate_digest: str
    device: DeviceKind
    precision: str
    verified: bool
    reason: str  # "" when verified; otherwise what stands against it
    checks: tuple[CheckOutcome, ...]
    measurement: Measurement | None
    environment: Environment
    date: str  # ISO 8601, UTC
    seconds: float = 0.0
    format: int = FORMAT

    def __post_init__(self) -> None:
        against = objection(self.device, self.checks)
        if self.verified and against:
            raise ValueError(f"this cannot be called verified: {against}")
        if self.verified and (self.reason or self.measurement is None):
            raise ValueError("a verified candidate has a measurement and no reason against it")
        if not self.verified and not self.reason:
            raise ValueError("what is not verified needs a reason")

    @property
    def correct(self) -> bool:
        """True if every check but the second measurement of the speed passed: the results are right."""
        others = [check for check in self.checks if check.name != REMEASUREMENT]
        return not objection(self.device, [*others, CheckOutcome(REMEASUREMENT, CheckStatus.PASSED)])

    @property
    def speed_repeated(self) -> bool:
        """True if the second measurement agreed with the first."""
        return any(c.name == REMEASUREMENT and c.outcome is CheckStatus.PASSED for c in self.checks)

    @property
    def failed(self) -> tuple[CheckOutcome, ...]:
        """The checks that it failed."""
        return tuple(check for check in self.checks if check.outcome is CheckStatus.FAILED)


def required(device: DeviceKind) -> tuple[str, ...]:
    """The checks that a certificate for this kind of device must name, in the order in which they are made."""
    return (*_COMMON, *_OF_DEVICE[device], REMEASUREMENT)


def objection(device: DeviceKind, checks: Sequence[CheckOutcome]) -> str:
    """What stands against calling it verified, in one sentence; "" where nothing does."""
    names = [check.name for check in checks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"the check {twice[0]!r} is named twice."
    for outcome, said in ((CheckStatus.FAILED, "failed"), (CheckStatus.UNAVAILABLE, "could not be made")):
        against = [check for check in checks if check.outcome is outcome]
        if against:
            first = against[0]
            others = sum(check.detail == first.detail for check in against) - 1
            rest = f" and {others} other{'s' if others > 1 else ''}" if others else ""
            return f"{first.name}{rest} {said}: {first_sentence(first.detail)}"
    missing = [name for name in required(device) if name not in names]
    if missing:
        return f"{missing[0]} was not made."
    idle = [c.name for c in checks if c.outcome is CheckStatus.NOT_APPLICABLE and c.name not in _MAY_NOT_APPLY]
    if idle:
        return f"{idle[0]} always applies and was not made."
    return ""


def first_sentence(text: str) -> str:
    """The first sentence of a text: messages of compilers and PyTorch have many lines."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", line, maxsplit=1)[0]


# The others make sense for every candidate.
_MAY_NOT_APPLY = frozenset({SHAPES, DISTRIBUTIONS, ADDRESS, UNDEFINED, *DEVICE_TOOLS})


@dataclass(frozen=True)
class Impostor:
    """One result that is wrong on purpose, in one output, and whether a check rejects it."""

    name: str  # e.g. "zeros", "copy of x"
    output: str
    applies: bool  # False: here it would be no impostor, or it could not be made; `detail` says why
    caught_by: str = ""  # "variant/workload"; "" where it does not apply, or where nothing catches it
    share: float | None = None  # its error ÷ the limit there; None for exact rules and for NaN
    detail: str = ""

    @property
    def passes(self) -> bool:
        """True if no check rejects this wrong result."""
        return self.applies and not self.caught_by


@dataclass(frozen=True)
class Calibration:
    """The outcome for one task on one device."""

    passed: bool
    reason: str = ""  # "" when passed; otherwise what would pass, why, and what to change
    impostors: tuple[Impostor, ...] = ()
    baseline_share: float | None = None  # the largest part of a limit that PyTorch's own results use
    reserve: tuple[str, ...] = ()  # input variants this task needs besides the usual ones
    seconds: float = 0.0
    cached: bool = False

    def __post_init__(self) -> None:
        if self.passed == bool(self.reason):
            raise ValueError("a calibration has a reason exactly when the task is refused")
