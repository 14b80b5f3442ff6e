"""Kernel times of one call, where counters may not be read: which kernel takes longest, and what the gaps cost.

The supervisor's side; the process is `timedsolo`. Times tell a call that is mostly gaps from one that is mostly work,
and which of several kernels to look at; why a kernel takes its time they do not tell.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.evaluate.profiling.digest import STRATEGIES, Bottleneck, Suspect, percent
from warpsmith.evaluate.profiling.ncu_csv import short_name
from warpsmith.evaluate.profiling.rules import IDLE, REST, SHORT_S
from warpsmith.evaluate.verification.sanitize import first_line
from warpsmith.evaluate.verification.solorun import Part, Stage, run_solo

FILE = "timings.json"
SOURCE = "kernel times (CUPTI)"
GAPS = 0.3
"""Of a call's span on the device: more than this between kernels, and starting them is what to look at."""

_MODULE = "warpsmith.evaluate.profiling.timedsolo"
_FILE_BYTES = 1 << 20
WAYS = (True, False)
"""Confined by the whole sandbox; else only by a user without rights."""


@dataclass(frozen=True)
class Timed:
    """One kernel of a call."""

    kernel: str
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Times:
    """The kernels of one call, in order; or why there are none."""

    kernels: tuple[Timed, ...] = ()
    reason: str = ""
    seconds: float = 0.0
    confined: bool = True  # how it went

    @property
    def busy_us(self) -> float:
        """Time in kernels."""
        return sum(max(0.0, each.end_us - each.start_us) for each in self.kernels)

    @property
    def span_us(self) -> float:
        """From the first kernel's start to the last one's end."""
        ends = [each.end_us for each in self.kernels]
        return max(ends) - min(each.start_us for each in self.kernels) if ends else 0.0

    @property
    def longest(self) -> str:
        """The kernel with the most time in all."""
        spent: dict[str, float] = {}
        for each in self.kernels:
            spent[each.kernel] = spent.get(each.kernel, 0.0) + each.end_us - each.start_us
        return max(spent, key=lambda name: spent[name]) if spent else ""


_TIMES = TypeAdapter(tuple[Timed, ...])


def measure(stage: Stage, part: Part, ways: Sequence[bool] = WAYS) -> Times:
    """Run one candidate with a profiler beside it; the first way that gives times is kept."""
    seconds, reason = 0.0, ""
    for confined in ways:
        name = f"timed-{'confined' if confined else 'open'}"
        # What is run before the process takes its place: the last word of a command is the plan.
        end = run_solo(stage, part, name, command=(sys.executable, "-m", _MODULE), confine=confined)
        seconds += end.ended.seconds
        kernels = read(end.scratch / FILE)
        if kernels:
            return Times(kernels, "", seconds, confined)
        said = "the profiler saw no kernel" if end.finished else first_line(end.ended.output).rstrip(".")
        reason = f"no kernel times came back: {said}."
        if end.ended.timed_out:
            break
    return Times((), reason, seconds)


def read(path: Path) -> tuple[Timed, ...]:
    """What the process wrote, read like any stranger's file; empty where it makes no sense."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = _TIMES.validate_json(file.read(_FILE_BYTES))
    except (OSError, ValidationError):
        return ()
    return tuple(replace(each, kernel=short_name(each.kernel)) for each in found if each.end_us >= each.start_us)


def suspects(times: Times) -> Iterator[Suspect]:
    """What times alone can prove: gaps, and one kernel among several that has most of the time."""
    count, busy, span = len(times.kernels), times.busy_us, times.span_us
    if not count or span <= 0:
        return
    gaps = max(0.0, 1.0 - busy / span)
    if count > 1 and gaps >= GAPS:
        yield Suspect(
            Bottleneck.LAUNCH,
            "The device is idle between the kernels of a call: starting them one by one costs more than it should.",
            (f"{count} kernels a call", f"{percent(gaps)} of the {span:.1f} µs on the device are gaps"),
            STRATEGIES[Bottleneck.LAUNCH],
            IDLE,
            gaps,
        )
    elif max(each.end_us - each.start_us for each in times.kernels) < 1e6 * SHORT_S:
        yield Suspect(
            Bottleneck.LAUNCH,
            "The kernel is over about as soon as it has started: starting it is what costs.",
            (f"the device works for {busy:.1f} µs a call", f"{count} kernel{'s' if count > 1 else ''} a call"),
            STRATEGIES[Bottleneck.LAUNCH],
            IDLE,
            1.0,
        )
    elif count > 1:
        names: Sequence[Timed] = [each for each in times.kernels if each.kernel == times.longest]
        share = sum(each.end_us - each.start_us for each in names) / busy if busy > 0 else 0.0
        yield Suspect(
            Bottleneck.LATENCY,
            "Several kernels share the time; without counters, what they wait for is not known.",
            (f"{times.longest} takes {percent(share)} of {busy:.1f} µs", f"{count} kernels a call"),
            (*STRATEGIES[Bottleneck.LATENCY], "kernel-fusion"),
            REST,
            0.5,
        )
