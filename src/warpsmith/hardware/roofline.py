"""The limits that the hardware sets for a task: floor, rejection limit and zone, computed without torch.

`Work` has the bytes and operations of a task (counted by `work`), `Peaks` the rates of a device (measured by `peaks`).
Two limits:

- `floor_ms` is the usual hardware limit: every input read once, every output written once, every counted operation
  done, at the task's own precision. A correct kernel can be faster (data that stays in a cache, fewer operations).
- `reject_below_ms` is the time below which no correct kernel can be on this device; in doubt the lower value counts.

`analyse` and `achieved` place a task and a measured candidate under the roofline. Without measured peaks the floors in
`WorkloadBound` give the rates: a floor that bytes decide gives the bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.model.brief import Problem, WorkloadBound
from warpsmith.model.build import DeviceKind
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.task import Precision


@dataclass(frozen=True)
class Work:
    """The bytes and operations of one run of a task."""

    read_bytes: int  # every input read once, in full
    written_bytes: int  # every output written once
    flops: int  # contractions, plus one per element of other floating-point operations
    essential_read_bytes: int  # a lower bound on the bytes that any correct kernel must read
    essential_flops: int  # a lower bound on the operations of any correct kernel, with the fastest known algorithms
    reduction: int  # K: the most terms summed into one element, for the rounding floor

    @property
    def bytes(self) -> int:
        """Least traffic of a kernel that reads all inputs and writes all outputs once."""
        return self.read_bytes + self.written_bytes

    @property
    def intensity(self) -> float:
        """Arithmetic intensity, FLOP per byte."""
        return self.flops / self.bytes if self.bytes else math.inf


_STEADY_SPREAD = 0.25
_STEADY_LOAD = 0.15
_LEAST_CERTAINTY = 0.1


@dataclass(frozen=True)
class Peaks:
    """The best rates measured on one device."""

    device_key: str  # `Device.key`
    kind: DeviceKind
    bandwidth_bytes_s: float  # main memory: the better of a read-only reduction and a copy
    cache_bandwidth_bytes_s: float  # data that stays in the last-level cache
    flops: tuple[tuple[str, float], ...]  # precision to FLOP/s of a matrix product, for precisions of the device
    launch_overhead_s: float  # one more kernel in a graph; one tiny operation on the CPU
    l2_bytes: int  # last-level cache
    sms: int  # multiprocessors; threads on the CPU
    measured_at: str  # ISO date and time, UTC
    torch: str  # version of torch
    spread: float = 0.0  # relative excess of the median over the best of repeated measurements
    load: float = 0.0  # share of the machine's processors that other processes used during the measurement

    @property
    def steady(self) -> bool:
        """True if repeats agree and other processes used little of the machine."""
        return self.spread <= _STEADY_SPREAD and self.load <= _STEADY_LOAD

    @property
    def certainty(self) -> float:
        """The least share of the device's real rates that the figures can be: 1 if they are steady."""
        return 1.0 if self.steady else max(_LEAST_CERTAINTY, 1 - self.load) / (1 + self.spread)

    def flops_s(self, precision: Precision) -> float:
        """FLOP/s at a precision; the fp32 rate if the device is not faster at a coarser precision."""
        rates = dict(self.flops)
        if precision is Precision.FP64:
            return rates["fp64"]
        return max(rates.get(precision.value, 0.0), rates["fp32"])


class Zone(StrEnum):
    """What limits the speed of a task."""

    LATENCY = "latency"  # so little work that the launch takes most of the time
    MEMORY = "memory"  # below both ridge points: limited by bandwidth
    MIDDLE = "middle"  # compute-bound without tensor cores, memory-bound with them
    COMPUTE = "compute"  # above both ridge points: limited by arithmetic


LATENCY_LAUNCHES = 2.0
"""A task whose floor is under this many launch overheads is in the latency zone."""

MARGINS = {DeviceKind.CUDA: 0.9, DeviceKind.CPU: 0.6}
"""Peaks are accurate to some per cent and clocks vary; other processes may have slowed a CPU while it was measured
and not while a candidate ran."""

CACHE_MARGIN = 0.5
"""Torch's kernels, which measure the cache, do not saturate it; inner caches are faster."""

GEMM_MARGIN = 1.3
"""Torch's matrix products reach 70-80 % of the arithmetic peak; a candidate's may be faster."""

# Products of a coarser type that together give a finer one, as FLOP/s of the coarser divided by their number:
# 3xTF32; two fp16 halves with scaling (three products); three bf16 parts (six of nine products matter). For
# fp64 from integer or half tensor cores (Ozaki) no scheme needs fewer than about ten. The tf32 class may use
# fp16, whose significand has the same 11 bits; fp16 and bf16 have the same rate and may replace each other.
_SPLITS: dict[Precision, tuple[tuple[str, float], ...]] = {
    Precision.FP64: (("fp64", 1), ("fp16", 10), ("bf16", 10)),
    Precision.FP32: (("fp32", 1), ("tf32", 3), ("fp16", 3), ("bf16", 6)),
    Precision.TF32: (("fp32", 1), ("tf32", 1), ("fp16", 1), ("bf16", 3)),
    Precision.FP16: (("fp32", 1), ("fp16", 1), ("bf16", 1)),
    Precision.BF16: (("fp32", 1), ("fp16", 1), ("bf16", 1)),
}


def floor_ms(work: Work, peaks: Peaks, precision: Precision) -> float:
    """The hardware limit in milliseconds: bytes ÷ bandwidth or flops ÷ the rate that the class permits, the larger."""
    return 1e3 * max(work.bytes / peaks.bandwidth_bytes_s, work.flops / permitted_flops_s(peaks, precision))


def permitted_flops_s(peaks: Peaks, precision: Precision) -> float:
    """The rate of the fastest known arithmetic that gives results of this precision class, in FLOP/s.

    Products of the fp32 class can be computed on tensor cores from parts of their factors.
    """
    return permitted(peaks.flops, precision).flops_s


def permitted(flops_s: tuple[tuple[str, float], ...], precision: Precision) -> Arithmetic:
    """The fastest known arithmetic for this precision class, from the rates of a device by type."""
    rates = dict(flops_s)
    known = [Arithmetic(name, parts, rates[name] / parts) for name, parts in _SPLITS[precision] if name in rates]
    return max(known, key=lambda each: each.flops_s)


def reject_below_ms(work: Work, peaks: Peaks, precision: Precision, *, cold: bool = True) -> float:
    """The time in milliseconds below which a kernel must have skipped work.

    `cold`: the judge flushed the device's cache before each timed call. The largest of three terms:

    - main memory: essential reads, plus writes beyond the size of the cache; both share one bus, so they add.
      (Outputs that fit may still be in the cache when the clock stops.) On the CPU, or when not cold, the first
      `l2_bytes` of the reads may come from the cache: a virtual machine cannot flush the cache that it shares.
    - the cache: all reads and writes pass through it.
    - arithmetic: operations that the best known algorithm needs, at the best rate of the precision class.

    Peaks measured on a busy machine are too low; the limit is lowered by the part that the load may explain.
    """
    read, written, cached = work.essential_read_bytes, work.written_bytes, peaks.l2_bytes
    from_memory = read if cold and peaks.kind is not DeviceKind.CPU else max(0, read - cached)
    memory_s = (from_memory + max(0, written - cached)) / peaks.bandwidth_bytes_s
    cache_s = CACHE_MARGIN * (read + written) / max(peaks.cache_bandwidth_bytes_s, peaks.bandwidth_bytes_s)
    arithmetic_s = work.essential_flops / (GEMM_MARGIN * permitted_flops_s(peaks, precision))
    return 1e3 * MARGINS[peaks.kind] * peaks.certainty * max(memory_s, cache_s, arithmetic_s)


def ridges(peaks: Peaks, precision: Precision) -> tuple[float, float]:
    """The two ridge points in FLOP per byte: plain arithmetic, and tensor cores as far as the class permits.

    They are equal where there is nothing faster than plain arithmetic, and then no task is in the middle.
    """
    plain_name = Precision.FP64 if precision is Precision.FP64 else Precision.FP32
    plain = peaks.flops_s(plain_name)
    best = permitted_flops_s(peaks, precision)
    return plain / peaks.bandwidth_bytes_s, max(plain, best) / peaks.bandwidth_bytes_s


def zone(work: Work, peaks: Peaks, precision: Precision) -> Zone:
    """What limits the speed of the task on this device."""
    if floor_ms(work, peaks, precision) < 1e3 * LATENCY_LAUNCHES * peaks.launch_overhead_s:
        return Zone.LATENCY
    plain, tensor = ridges(peaks, precision)
    if work.intensity < plain:
        return Zone.MEMORY
    return Zone.COMPUTE if work.intensity >= tensor else Zone.MIDDLE


_PEAKS = TypeAdapter(Peaks)


@dataclass(frozen=True)
class Arithmetic:
    """A way to compute products of a precision class."""

    type: str  # of the instructions: "tf32"
    products: float  # of this type for one of the class; 1 where the type alone is precise enough
    flops_s: float  # counted in products of the class


@dataclass(frozen=True)
class Ceilings:
    """The limits of a device; None where neither peaks nor a floor give a value."""

    bandwidth_bytes_s: float | None
    plain_flops_s: float | None  # arithmetic without tensor cores
    best_flops_s: float | None  # the fastest arithmetic that the precision class permits
    launch_ms: float | None = None

    @property
    def ridges(self) -> tuple[float, float] | None:
        """Both ridge points in FLOP per byte; equal without tensor cores for this class, None if unknown."""
        if not self.bandwidth_bytes_s or not self.plain_flops_s or not self.best_flops_s:
            return None
        return self.plain_flops_s / self.bandwidth_bytes_s, self.best_flops_s / self.bandwidth_bytes_s


@dataclass(frozen=True)
class WorkloadAnalysis:
    """Bytes, operations, floor and zone of one workload."""

    workload: str
    bytes: int
    flops: int
    intensity: float  # FLOP per byte; infinite without bytes
    floor_ms: float
    zone: str  # a value of `Zone`

    @property
    def reason(self) -> str:
        """The explanation of the zone."""
        return _REASONS.get(self.zone, "")


@dataclass(frozen=True)
class Analysis:
    """The workloads of a task and the ceilings of a device."""

    ceilings: Ceilings
    workloads: tuple[WorkloadAnalysis, ...]

    @property
    def largest(self) -> WorkloadAnalysis:
        """The workload with the largest floor."""
        return max(self.workloads, key=lambda each: each.floor_ms)


@dataclass(frozen=True)
class Achieved:
    """The rates that a candidate reached on one workload."""

    workload: str
    latency_ms: float
    bandwidth_bytes_s: float  # useful bytes: each input once, each output once
    flops_s: float
    intensity: float
    share_of_floor: float  # of the hardware limit
    share_of_bandwidth: float | None
    share_of_flops: float | None  # of the fastest arithmetic permitted


_REASONS: dict[str, str] = {
    Zone.LATENCY: "so little work that the launch takes most of the time",
    Zone.MEMORY: "below both ridge points: limited by memory bandwidth",
    Zone.MIDDLE: "between the ridge points: limited by arithmetic, or with tensor cores by memory bandwidth",
    Zone.COMPUTE: "above both ridge points: limited by arithmetic",
}


def analyse(problem: Problem, peaks: Peaks | None = None) -> Analysis:
    """The analysis of every workload of a problem; without peaks the ceilings come from the problem's floors."""
    return Analysis(ceilings(problem, peaks), tuple(_analysed(bound) for bound in problem.bounds))


def ceilings(problem: Problem, peaks: Peaks | None = None) -> Ceilings:
    """The ceilings of a device, from measured peaks, else from the problem's floors."""
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
    # A floor is the larger of two times; the zone says which of them, and so which rate it gives.
    measured = [bound for bound in problem.bounds if bound.floor_ms > 0]
    by_bytes = [1e3 * each.bytes / each.floor_ms for each in measured if each.zone in (Zone.MEMORY, Zone.MIDDLE)]
    by_flops = [1e3 * each.flops / each.floor_ms for each in measured if each.zone == Zone.COMPUTE]
    rate = max(by_flops, default=None)
    return Ceilings(max(by_bytes, default=None), rate, rate)


def achieved(evaluation: Evaluation, roof: Ceilings) -> tuple[Achieved, ...]:
    """The rates that a candidate reached on each workload; () if it is not valid."""
    return tuple(_reached(evaluation, roof))


def known_peaks(cache: Path, device_key: str) -> Peaks | None:
    """The latest stored peaks of a device; None if there are none.

    Unlike `hardware.peaks`, which measures, this needs no torch.
    """
    found: list[Peaks] = []
    for path in sorted((cache / "peaks").glob("*.json")):
        try:
            peaks = _PEAKS.validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue  # a damaged file, or one of another release: a judge replaces it
        if peaks.device_key == device_key:
            found.append(peaks)
    return max(found, key=lambda each: each.measured_at, default=None)


def _analysed(bound: WorkloadBound) -> WorkloadAnalysis:
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
