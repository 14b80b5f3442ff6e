"""Where a task stands under the roofline of its device, and where a measured candidate stands: arithmetic, no torch.

A run's own records are enough: `Bound` says what a workload needs and its floor, and from a floor that bytes decide
follows the bandwidth. Measured peaks (`known_peaks`) say all of it, both ridge points with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.core.evaluation import Evaluation
from warpsmith.core.search import Bound, Problem
from warpsmith.core.task import Precision
from warpsmith.hardware.roofline import Peaks, Zone, ridges

_PEAKS = TypeAdapter(Peaks)


@dataclass(frozen=True)
class Ceilings:
    """The roof: None where neither peaks were given nor a floor tells."""

    bandwidth_bytes_s: float | None
    plain_flops_s: float | None  # arithmetic without tensor cores
    best_flops_s: float | None  # the fastest arithmetic that the precision class permits
    launch_ms: float | None = None

    @property
    def ridges(self) -> tuple[float, float] | None:
        """Both ridge points in FLOP per byte; equal where there are no tensor cores for this class."""
        if not self.bandwidth_bytes_s or not self.plain_flops_s or not self.best_flops_s:
            return None
        return self.plain_flops_s / self.bandwidth_bytes_s, self.best_flops_s / self.bandwidth_bytes_s


@dataclass(frozen=True)
class WorkloadAnalysis:
    """What one workload needs, and what that makes of it."""

    workload: str
    bytes: int
    flops: int
    intensity: float  # FLOP per byte; infinite where nothing is moved
    floor_ms: float
    zone: str  # a value of `Zone`

    @property
    def reason(self) -> str:
        """The zone in words."""
        return _REASONS.get(self.zone, "")


@dataclass(frozen=True)
class Analysis:
    """A task on a device."""

    ceilings: Ceilings
    workloads: tuple[WorkloadAnalysis, ...]

    @property
    def largest(self) -> WorkloadAnalysis:
        """The workload that takes longest at best: what optimising is about."""
        return max(self.workloads, key=lambda each: each.floor_ms)


@dataclass(frozen=True)
class Achieved:
    """What a candidate made of one workload."""

    workload: str
    latency_ms: float
    bandwidth_bytes_s: float  # useful bytes: each input once, each output once
    flops_s: float
    intensity: float
    share_of_floor: float  # of the speed of light
    share_of_bandwidth: float | None
    share_of_flops: float | None  # of the fastest arithmetic permitted


_REASONS: dict[str, str] = {
    Zone.LATENCY: "so little work that starting the kernel decides",
    Zone.MEMORY: "below both ridge points: moving bytes decides",
    Zone.MIDDLE: "between the ridge points: plain arithmetic would decide, with tensor cores bytes do",
    Zone.COMPUTE: "above both ridge points: arithmetic decides",
}


def analyse(problem: Problem, peaks: Peaks | None = None) -> Analysis:
    """Every workload of a problem; with peaks, under the whole roof."""
    return Analysis(ceilings(problem, peaks), tuple(_analysed(bound) for bound in problem.bounds))


def ceilings(problem: Problem, peaks: Peaks | None = None) -> Ceilings:
    """The roof, from measured peaks or, without, as far as the problem's own floors tell."""
    precision = problem.task.precision
    if peaks is not None:
        plain = peaks.flops_s(Precision.FP64 if precision is Precision.FP64 else Precision.FP32)
        _, far = ridges(peaks, precision)
        return Ceilings(
            bandwidth_bytes_s=peaks.bandwidth_bytes_s,
            plain_flops_s=plain,
            best_flops_s=far * peaks.bandwidth_bytes_s,
            launch_ms=1e3 * peaks.launch_overhead_s,
        )
    # A floor is the larger of two times: a rate that it gives is exact where its side decided, else too low.
    measured = [bound for bound in problem.bounds if bound.floor_ms > 0]
    by_bytes = [1e3 * each.bytes / each.floor_ms for each in measured if each.zone == Zone.MEMORY]
    by_flops = [1e3 * each.flops / each.floor_ms for each in measured if each.zone in (Zone.MIDDLE, Zone.COMPUTE)]
    rate = max(by_flops, default=None)
    return Ceilings(max(by_bytes, default=None), rate, rate)


def achieved(evaluation: Evaluation, roof: Ceilings) -> tuple[Achieved, ...]:
    """What a candidate reached in each workload; empty where it is not valid."""
    return tuple(_reached(evaluation, roof))


def known_peaks(cache: Path, device_key: str) -> Peaks | None:
    """What a judge measured on this device and kept, the latest; None where none has been here.

    `hardware.peaks` measures and imports torch for it; this only reads.
    """
    found: list[Peaks] = []
    for path in sorted((cache / "peaks").glob("*.json")):
        try:
            peaks = _PEAKS.validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue  # half a file, or one of another release: a judge replaces it
        if peaks.device_key == device_key:
            found.append(peaks)
    return max(found, key=lambda each: each.measured_at, default=None)


def _analysed(bound: Bound) -> WorkloadAnalysis:
    intensity = bound.flops / bound.bytes if bound.bytes else math.inf
    return WorkloadAnalysis(bound.workload, bound.bytes, bound.flops, intensity, bound.floor_ms, bound.zone)


def _reached(evaluation: Evaluation, roof: Ceilings) -> Iterator[Achieved]:
    for result in evaluation.workloads:
        seconds = result.latency_ms / 1e3
        if seconds <= 0:
            continue
        bandwidth, flops = result.bytes / seconds, result.flops / seconds
        yield Achieved(
            workload=result.workload,
            latency_ms=result.latency_ms,
            bandwidth_bytes_s=bandwidth,
            flops_s=flops,
            intensity=result.flops / result.bytes if result.bytes else math.inf,
            share_of_floor=result.share_of_floor,
            share_of_bandwidth=bandwidth / roof.bandwidth_bytes_s if roof.bandwidth_bytes_s else None,
            share_of_flops=flops / roof.best_flops_s if roof.best_flops_s else None,
        )
