"""Kernel times of one call, for users who may not read counters: the longest kernel and the gaps between kernels.

Runs in the supervisor's process; the measuring process is `standalone_timed`. Times do not show why a kernel is slow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.model.numbers import whole_percent
from warpsmith.profiling.digest import STRATEGIES, Bottleneck, Diagnosis, Rank
from warpsmith.profiling.ncu import short_name
from warpsmith.profiling.ncu_rules import SHORT_S
from warpsmith.verification.sanitizers import first_line
from warpsmith.verification.standalone_run import (
    StandaloneCandidate,
    StandaloneSettings,
    read_untrusted,
    run_standalone,
)

FILE = "timings.json"
SOURCE = "kernel times (CUPTI)"
GAPS = 0.3
"""Share of a call's time on the device that is spent between kernels, above which launches are the problem."""

_MODULE = "warpsmith.profiling.standalone_timed"
_FILE_BYTES = 1 << 20
CONFINEMENTS = (True, False)
"""The confinements in the order in which they are tried: the whole sandbox, or only another user."""


@dataclass(frozen=True)
class KernelTime:
    """One kernel of a call."""

    kernel: str
    start_us: float
    end_us: float


@dataclass(frozen=True)
class KernelTimes:
    """The kernels of one call, in order, or the reason why there are none."""

    kernels: tuple[KernelTime, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    confined: bool = True  # the confinement that worked

    @property
    def busy_us(self) -> float:
        """The time in kernels, in microseconds."""
        return sum(max(0.0, each.end_us - each.start_us) for each in self.kernels)

    @property
    def span_us(self) -> float:
        """The time from the start of the first kernel to the end of the last, in microseconds."""
        ends = [each.end_us for each in self.kernels]
        return max(ends) - min(each.start_us for each in self.kernels) if ends else 0.0

    @property
    def longest(self) -> str:
        """The kernel with the longest total time."""
        spent: dict[str, float] = {}
        for each in self.kernels:
            spent[each.kernel] = spent.get(each.kernel, 0.0) + each.end_us - each.start_us
        return max(spent, key=lambda name: spent[name]) if spent else ""


_TIMES = TypeAdapter(tuple[KernelTime, ...])


def measure(
    settings: StandaloneSettings, standalone: StandaloneCandidate, confinements: Sequence[bool] = CONFINEMENTS
) -> KernelTimes:
    """Run one candidate with torch's profiler, confined as far as the profiler permits."""
    seconds, reason = 0.0, ""
    for confined in confinements:
        name = f"timed-{'confined' if confined else 'open'}"
        # This module replaces the usual program: the last argument of the command is the plan.
        end = run_standalone(
            settings, standalone, name, command=(sys.executable, "-P", "-m", _MODULE), confine=confined
        )
        seconds += end.ended.seconds
        kernels = read(end.scratch / FILE)
        if kernels:
            return KernelTimes(kernels, "", seconds, confined)
        said = "the profiler saw no kernel" if end.finished else first_line(end.ended.output).rstrip(".")
        reason = f"no kernel times came back: {said}."
        if end.ended.timed_out:
            break
    return KernelTimes((), reason, seconds)


def read(path: Path) -> tuple[KernelTime, ...]:
    """The times that the process wrote; () if the file is malformed, since the candidate could have written it."""
    try:
        found = _TIMES.validate_json(read_untrusted(path, _FILE_BYTES))
    except (OSError, ValidationError):
        return ()
    return tuple(replace(each, kernel=short_name(each.kernel)) for each in found if each.end_us >= each.start_us)


def diagnoses(times: KernelTimes) -> Iterator[Diagnosis]:
    """Diagnoses from times alone: gaps between kernels, short kernels, and the longest of several kernels."""
    count, busy, span = len(times.kernels), times.busy_us, times.span_us
    if not count or span <= 0:
        return
    gaps = max(0.0, 1.0 - busy / span)
    if count > 1 and gaps >= GAPS:
        yield Diagnosis(
            Bottleneck.LAUNCH,
            "The device is idle between the kernels of a call: their launches cost time.",
            (f"{count} kernels a call", f"{whole_percent(gaps)} of the {span:.1f} µs on the device are gaps"),
            STRATEGIES[Bottleneck.LAUNCH],
            Rank.IDLE,
            gaps,
        )
    elif max(each.end_us - each.start_us for each in times.kernels) < 1e6 * SHORT_S:
        yield Diagnosis(
            Bottleneck.LAUNCH,
            "The kernel is so short that the launch takes most of the time.",
            (f"the device works for {busy:.1f} µs a call", f"{count} kernel{'s' if count > 1 else ''} a call"),
            STRATEGIES[Bottleneck.LAUNCH],
            Rank.IDLE,
            1.0,
        )
    elif count > 1:
        names: Sequence[KernelTime] = [each for each in times.kernels if each.kernel == times.longest]
        share = sum(each.end_us - each.start_us for each in names) / busy if busy > 0 else 0.0
        yield Diagnosis(
            Bottleneck.LATENCY,
            "Several kernels share the time; without counters the cause is unknown.",
            (f"{times.longest} takes {whole_percent(share)} of {busy:.1f} µs", f"{count} kernels a call"),
            (*STRATEGIES[Bottleneck.LATENCY], "kernel-fusion"),
            Rank.UNCLEAR,
            0.5,
        )
