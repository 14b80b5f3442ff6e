"""What deep verification says about a candidate. Impossible combinations cannot be built.

A certificate names every check that was made, with its figures, and every check that could not be made. It is
`verified` exactly where nothing stands against that; nobody else may call a candidate verified. It is a record,
not a signature: whoever can write the file can write another one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from warpsmith.core.evaluation import Environment, Evaluation

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
_OF_DEVICE = {"cpu": (ADDRESS, UNDEFINED), "cuda": DEVICE_TOOLS}

Figure = float | int | str


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"  # it should have been made and could not be: a tool is missing or broke
    NOT_APPLICABLE = "does_not_apply"  # there is nothing to check: no axis varies, no native code


@dataclass(frozen=True)
class CheckOutcome:
    """One check."""

    name: str
    outcome: Outcome
    detail: str = ""  # one sentence; needed unless it passed
    figures: tuple[tuple[str, Figure], ...] = ()
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a check needs a name")
        if self.outcome is not Outcome.PASSED and not self.detail:
            raise ValueError(f"check {self.name!r} ended as {self.outcome} and must say why")
        wrong = [name for name, value in self.figures if isinstance(value, float) and not math.isfinite(value)]
        if wrong:
            raise ValueError(f"figure {wrong[0]!r} of check {self.name!r} is not a finite number")


@dataclass(frozen=True)
class Speedup:
    """A speedup over one baseline with its 95 % interval."""

    baseline: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Measurement:
    """What the verified evaluation measured; geometric means over the workloads."""

    latency_ms: float
    speedups: tuple[Speedup, ...]
    error: float  # with its limit: of the workload where it came nearest to the limit
    error_limit: float

    @staticmethod
    def of(evaluation: Evaluation) -> Measurement | None:
        """From a verdict; None where the candidate is not valid."""
        if not evaluation.ok:
            return None
        names = dict.fromkeys(b.name for w in evaluation.workloads for b in w.baselines)
        speedups = []
        for name in names:
            value, interval = evaluation.speedup(name), evaluation.interval(name)
            if value is not None and interval is not None:
                speedups.append(Speedup(name, value, interval.low, interval.high))
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
    device: str  # the kind: "cpu" or "cuda"
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
    def failed(self) -> tuple[CheckOutcome, ...]:
        """The checks that it failed."""
        return tuple(check for check in self.checks if check.outcome is Outcome.FAILED)


def required(device: str) -> tuple[str, ...]:
    """The checks that a certificate for this kind of device must name, in the order in which they are made."""
    return (*_COMMON, *_OF_DEVICE.get(device, ()), REMEASUREMENT)


def objection(device: str, checks: Sequence[CheckOutcome]) -> str:
    """What stands against calling it verified, in one sentence; "" where nothing does."""
    names = [check.name for check in checks]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"the check {twice[0]!r} is named twice."
    for outcome, said in ((Outcome.FAILED, "failed"), (Outcome.UNAVAILABLE, "could not be made")):
        against = [check for check in checks if check.outcome is outcome]
        if against:
            first = against[0]
            others = sum(check.detail == first.detail for check in against) - 1
            rest = f" and {others} other{'s' if others > 1 else ''}" if others else ""
            return f"{first.name}{rest} {said}: {first_sentence(first.detail)}"
    missing = [name for name in required(device) if name not in names]
    if missing:
        return f"{missing[0]} was not made."
    idle = [c.name for c in checks if c.outcome is Outcome.NOT_APPLICABLE and c.name not in _MAY_NOT_APPLY]
    if idle:
        return f"{idle[0]} always applies and was not made."
    return ""


def first_sentence(text: str) -> str:
    """What a text begins with: compilers and PyTorch go on for many lines."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return re.split(r"(?<=[.!?])\s+(?=[A-Z])", line, maxsplit=1)[0]


# The others make sense for every candidate.
_MAY_NOT_APPLY = frozenset({SHAPES, DISTRIBUTIONS, ADDRESS, UNDEFINED, *DEVICE_TOOLS})
