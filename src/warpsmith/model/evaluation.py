"""The outcome of judging one candidate. Impossible combinations cannot be built.

A candidate that is not valid has no speedup; a valid one has a latency, an error and a floor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    """What became of a candidate. Everything except OK says what the candidate did wrong."""

    OK = "ok"
    BUILD_ERROR = "build_error"  # it does not compile or link, or lacks the entry point
    WRONG = "wrong"  # it ran, and its result is not the operator's
    UNWRITTEN = "unwritten"  # it left part of an output as it found it
    OUT_OF_BOUNDS = "out_of_bounds"  # it touched memory outside its buffers
    INPUT_MODIFIED = "input_modified"  # it wrote to an input
    LAUNCH_FAILED = "launch_failed"  # its entry point or the device reported an error
    CRASHED = "crashed"  # its process died
    TIMED_OUT = "timed_out"  # it did not come back in time
    OUT_OF_MEMORY = "out_of_memory"  # it asked for more memory than it is given
    BELOW_FLOOR = "below_floor"  # faster than the hardware can be: some work was not done
    REJECTED = "rejected"  # a guard found it cheating; the reason names the class
    NOT_JUDGED = "not_judged"  # our own fault, after retries; says nothing about the candidate


_LEAST_RATIO = 1e-12  # of two times that somebody measured


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"interval runs backwards: {self.low} > {self.high}")

    @property
    def excludes_one(self) -> bool:
        """Whether the two sides differ for sure: only then is one called faster."""
        return self.low > 1.0 or self.high < 1.0


@dataclass(frozen=True)
class Baseline:
    """The candidate against one baseline in one workload, measured interleaved."""

    name: str  # "eager", "compile", "start"
    latency_ms: float  # the baseline's median
    speedup: float  # baseline time ÷ candidate time, median of the pairs
    interval: Interval  # of the speedup
    samples: int  # pairs taken

    def __post_init__(self) -> None:
        ratios = (self.interval.low, self.interval.high, self.speedup)
        if not all(_LEAST_RATIO <= each <= 1 / _LEAST_RATIO for each in ratios):
            raise ValueError(f"no ratio of two times: {self.speedup}, {self.interval}")

    @property
    def candidate_ms(self) -> float:
        """The candidate's time in the pairs with this baseline, by the median of their ratios."""
        return self.latency_ms / self.speedup


@dataclass(frozen=True)
class Resources:
    """What the compiler says one kernel uses; zero where it does not apply."""

    kernel: str
    registers: int = 0
    spill_bytes: int = 0  # stores + loads
    shared_bytes: int = 0
    stack_bytes: int = 0


@dataclass(frozen=True)
class WorkloadResult:
    """One workload of a valid candidate."""

    workload: str
    axes: tuple[tuple[str, int], ...]
    latency_ms: float
    timing: str  # how it was timed: "replayed" or "outside" (GPU), "batched" or "single" (CPU)
    baselines: tuple[Baseline, ...]
    error: float  # the largest scaled error over all checks
    error_limit: float  # the limit that applied where the error came nearest to it
    floor_ms: float  # hardware limit: the larger of bytes ÷ bandwidth and flops ÷ peak
    bytes: int
    flops: int
    checks: int  # input sets judged against the reference
    reference: str  # "fp64", "fp64 in slices", "fp64 on a smaller workload", "baseline"

    @property
    def share_of_floor(self) -> float:
        """Share of the hardware limit reached; above 1 only where results stay in the cache."""
        return self.floor_ms / self.latency_ms if self.latency_ms > 0 else math.inf


@dataclass(frozen=True)
class Environment:
    """Where and with what it was measured."""

    device: str  # e.g. "NVIDIA H200 (cuda:0)"
    backend: str
    compiler: str
    torch: str
    driver: str = ""
    sandbox: tuple[str, ...] = ()  # the layers that were active
    threads: int = 0  # CPU threads of both sides
    harness: str = ""
    node: str = ""  # on a cluster: the node, and its device by a name that is unique on the node


@dataclass(frozen=True)
class Evaluation:
    """One verdict."""

    task: str
    candidate: str  # the candidate's id
    status: Status
    reason: str  # "" when ok; otherwise what happened and what to change, for the next prompt
    environment: Environment
    precision: str
    workloads: tuple[WorkloadResult, ...] = ()
    resources: tuple[Resources, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader should know about how it was judged
    without: tuple[str, ...] = ()  # guards that were left out: then the verdict cannot be trusted
    uncalibrated: str = ""  # what wrong results the task cannot tell from right ones; "": the task is calibrated
    published: bool | None = None  # valid by the published rule (5 inputs, tolerance 1e-2); None: not asked or not run
    seconds: float = field(default=0.0, compare=False)  # wall time spent on it
    cached: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.status is Status.OK:
            if not self.workloads:
                raise ValueError("a valid candidate must have been measured on at least one workload")
            if self.reason:
                raise ValueError("a valid candidate has no reason for failure")
        else:
            if self.workloads:
                raise ValueError("an invalid candidate has no latency and no speedup")
            if not self.reason:
                raise ValueError(f"status {self.status} needs a reason")

    @property
    def ok(self) -> bool:
        """Whether the candidate is valid."""
        return self.status is Status.OK

    @property
    def warning(self) -> str:
        """Why the verdict proves less than usual, in a sentence; "" if it does not."""
        if self.without:
            return f"judged without the guards {', '.join(self.without)}; not to be trusted."
        return f"calibrated: no ({self.uncalibrated.rstrip('.')})." if self.uncalibrated else ""

    @property
    def mark(self) -> str:
        """The warning in a word or two, for a table."""
        left_out = (f"without {', '.join(self.without)}",) if self.without else ()
        return ", ".join((*left_out, *(("calibrated: no",) if self.uncalibrated else ())))

    def speedup(self, baseline: str = "eager") -> float | None:
        """Geometric mean over the workloads of the speedup over one baseline; None when there is none."""
        logs = [math.log(b.speedup) for w in self.workloads for b in w.baselines if b.name == baseline]
        return math.exp(sum(logs) / len(logs)) if logs else None

    def interval(self, baseline: str = "eager") -> Interval | None:
        """The interval of `speedup`: workloads combined as independent measurements."""
        found = [b for w in self.workloads for b in w.baselines if b.name == baseline]
        if not found:
            return None
        centre = sum(math.log(b.speedup) for b in found) / len(found)
        below = math.sqrt(sum(math.log(b.speedup / b.interval.low) ** 2 for b in found)) / len(found)
        above = math.sqrt(sum(math.log(b.interval.high / b.speedup) ** 2 for b in found)) / len(found)
        return Interval(math.exp(centre - below), math.exp(centre + above))
