"""What is known of the kernels of the collection: one file per device in `kernels/facts`.

`benchmarks/collection_record.py` writes the files, and `benchmarks/compile_facts.py` adds the times of torch.compile on
the same tasks; `read_facts` is their only reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from warpsmith.backends.library import library_digest, library_headers
from warpsmith.model.candidate import Candidate
from warpsmith.system.files import put_in_place

FACTS = Path(__file__).resolve().parent / "facts"


class KernelState(StrEnum):
    """How far a kernel has come on one device."""

    VERIFIED = "verified"  # with a certificate
    JUDGED = "judged, not verified"
    NOT_VERIFIED = "judged, verification failed"
    NOT_VALID = "judged, not valid"
    CHANGED = "changed since it was judged"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class KernelFacts:
    """What is known of one kernel on one device."""

    task: str
    family: str
    candidate: str  # `identity` of the kernel that was judged
    status: str  # a value of `Status`, or "fault" where nothing could be judged
    reason: str
    speedup: float | None  # over PyTorch eager
    interval: tuple[float, float] | None
    latency_ms: tuple[float, ...]  # by workload
    eager_ms: tuple[float, ...]
    share_of_floor: tuple[float, ...]
    error: float | None  # the largest over its limit, of all workloads
    verified: bool | None  # None: not tried
    objection: str  # why it is not verified
    seconds: float
    any_shape: bool = False  # verification tested other shapes than the workloads'
    date: str = ""  # "": that of the file
    versions: Mapping[str, str] = field(default_factory=dict)  # {}: those of the file
    lineage: str = ""  # the run it came from, in one sentence

    @property
    def share(self) -> float | None:
        """The share of the hardware's limit in the worst workload."""
        return min(self.share_of_floor, default=None)


@dataclass(frozen=True)
class MeasuredRatio:
    """A ratio of times with its 95 % interval."""

    value: float
    low: float
    high: float

    def over(self, other: MeasuredRatio, further: float = 0.0) -> MeasuredRatio:
        """This ratio divided by another one that was measured apart from it.

        The errors of logarithms are taken as independent: the distances of the bounds add up in squares, with those of
        `further`, the logarithm of another error.
        """
        value = self.value / other.value
        below = math.hypot(math.log(self.value / self.low), math.log(other.high / other.value), further)
        above = math.hypot(math.log(self.high / self.value), math.log(other.value / other.low), further)
        return MeasuredRatio(value, value * math.exp(-below), value * math.exp(above))


@dataclass(frozen=True)
class MedianTime:
    """A median of times with its 95 % interval."""

    ms: float
    low_ms: float
    high_ms: float

    def over(self, other: MedianTime) -> MeasuredRatio:
        """This time divided by another one."""
        here, there = (MeasuredRatio(time.ms, time.low_ms, time.high_ms) for time in (self, other))
        return here.over(there)


@dataclass(frozen=True)
class PytorchTimes:
    """PyTorch's two forms on one task, timed in one sitting, by workload."""

    eager: tuple[MedianTime, ...]
    compile: tuple[MedianTime, ...]

    @property
    def compile_speedup(self) -> MeasuredRatio:
        """How much faster torch.compile is than eager: the geometric mean over the workloads."""
        return mean_ratio(e.over(c) for e, c in zip(self.eager, self.compile, strict=True))


def mean_ratio(ratios: Iterable[MeasuredRatio]) -> MeasuredRatio:
    """The geometric mean of ratios whose errors are independent."""
    found = list(ratios)
    value = math.exp(sum(math.log(each.value) for each in found) / len(found))
    below = math.hypot(*(math.log(each.value / each.low) for each in found)) / len(found)
    above = math.hypot(*(math.log(each.high / each.value) for each in found)) / len(found)
    return MeasuredRatio(value, value * math.exp(-below), value * math.exp(above))


@dataclass(frozen=True)
class PytorchRecord:
    """What torch.compile does on a device, measured beside eager and apart from the kernels."""

    date: str
    versions: Mapping[str, str]
    precision: str  # class of all times
    tasks: Mapping[str, PytorchTimes]


@dataclass(frozen=True)
class DeviceFacts:
    """What is known of the kernels on one device."""

    device: str  # the name of the GPU: "NVIDIA H200"
    date: str
    versions: Mapping[str, str]
    kernels: Mapping[str, KernelFacts]  # by task: "warpsmith-100/matmul"
    pytorch: PytorchRecord | None = None  # None: torch.compile was not measured there


def over_eager(kernel: KernelFacts) -> MeasuredRatio | None:
    """How much faster a kernel is than PyTorch eager; both were timed in turn."""
    if kernel.status != "ok" or not kernel.speedup:
        return None
    low, high = kernel.interval or (kernel.speedup, kernel.speedup)
    return MeasuredRatio(kernel.speedup, low, high)


def over_compile(kernel: KernelFacts, pytorch: PytorchTimes | None) -> MeasuredRatio | None:
    """How much faster a kernel is than torch.compile, which was timed on another day.

    Each day has its speedup over eager, so what slows down a whole day cancels out. That eager took longer or less on
    one of the days is a further error of the ratio.
    """
    speedup = over_eager(kernel)
    if speedup is None or pytorch is None:
        return None
    return speedup.over(pytorch.compile_speedup, further=math.log(_eager_change(kernel, pytorch)))


def over_best_of_pytorch(kernel: KernelFacts, pytorch: PytorchTimes | None) -> MeasuredRatio | None:
    """How much faster a kernel is than the faster of PyTorch's two forms; None if torch.compile was not timed."""
    if pytorch is None:
        return None
    return over_compile(kernel, pytorch) if pytorch.compile_speedup.value > 1.0 else over_eager(kernel)


def _eager_change(kernel: KernelFacts, pytorch: PytorchTimes) -> float:
    """The time of eager beside the kernel, divided by its time beside torch.compile."""
    pairs = [(now, then.ms) for now, then in zip(kernel.eager_ms, pytorch.eager, strict=False)]
    logs = [math.log(now / then) for now, then in pairs if now > 0 and then > 0]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


_FILE = TypeAdapter(DeviceFacts)


@cache
def read_facts(folder: Path = FACTS) -> tuple[DeviceFacts, ...]:
    """All that is known, device by device."""
    return tuple(_FILE.validate_json(file.read_bytes()) for file in sorted(folder.glob("*.json")))


def write_facts(path: Path, facts: DeviceFacts) -> None:
    """Write the file of one device, whole or not at all."""
    put_in_place(path, _FILE.dump_json(facts, indent=1) + b"\n", 0o644)


def read_device(path: Path) -> DeviceFacts | None:
    """The file of one device; None if there is none."""
    return _FILE.validate_json(path.read_bytes()) if path.exists() else None


def identity(candidate: Candidate) -> str:
    """A name for a kernel as it is compiled: another text, or another header that it includes, is another kernel."""
    headers = library_headers(*(file.text for file in candidate.files))
    return f"{candidate.id}-{library_digest(headers)[:8]}"


def state_of(candidate: Candidate, facts: KernelFacts | None) -> KernelState:
    """How far a kernel has come."""
    if facts is None or facts.status in ("fault", "not_judged"):
        return KernelState.NOT_JUDGED
    if facts.candidate != identity(candidate):
        return KernelState.CHANGED
    if facts.status != "ok":
        return KernelState.NOT_VALID
    if facts.verified is None:
        return KernelState.JUDGED
    return KernelState.VERIFIED if facts.verified else KernelState.NOT_VERIFIED
