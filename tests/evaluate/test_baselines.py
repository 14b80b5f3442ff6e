"""A baseline on the CPU: what others have disturbed is done again, and memory is there before it is used."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from warpsmith.evaluate.judging import baselines
from warpsmith.evaluate.judging.baselines import CpuBaseline
from warpsmith.evaluate.judging.meter import Usage
from warpsmith.evaluate.supervising.workforce import Workforce


class _Meter:
    """Says what it is told: how long threads have waited, in each attempt."""

    def __init__(self, waits: Sequence[int]) -> None:
        self._waits: Iterator[int] = iter(waits)
        self._glances = 0

    def glance(self) -> Usage:
        """Three times for each attempt: before threads are seated, before the clock, behind it."""
        self._glances += 1
        return Usage(0, {}, {"1": next(self._waits) if self._glances % 3 == 0 else 0}, 0)


def _baseline(monkeypatch: pytest.MonkeyPatch, waits: Sequence[int], times_ns: Sequence[int]) -> tuple[Any, list[int]]:
    """A side whose attempts wait and take that long, and the sets that it was called with."""
    called: list[int] = []
    clock = iter([tick for index, taken in enumerate(times_ns) for tick in (1000 * index, 1000 * index + taken)])

    def call() -> tuple[torch.Tensor, ...]:
        called.append(0)
        return (torch.zeros(1),)

    side = CpuBaseline("eager", [call], flush=lambda: None, threads=lambda: nullcontext())
    side._meter = _Meter(waits)  # type: ignore[assignment]
    monkeypatch.setattr(baselines, "until_prompt", lambda act, most_ms: None)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))
    return side, called


def test_what_is_not_disturbed_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    side, called = _baseline(monkeypatch, [4], [100])
    assert side.sample(False, [0]) == 100
    assert called == [0]
    assert len(side.outputs()) == 1


def test_what_is_disturbed_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    side, called = _baseline(monkeypatch, [300, 50, 0], [400, 150, 101])
    assert side.sample(False, [0]) == 101
    assert called == [0, 0, 0]
    assert len(side.outputs()) == 1  # the last attempt's


def test_where_all_are_disturbed_the_least_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    side, called = _baseline(monkeypatch, [300, 50, 60, 70, 80], [400, 150, 130, 170, 180])
    assert side.sample(False, [0]) == 150
    assert called == [0] * 5


_ALLOCATES = """
import resource, time, torch
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made = [torch.ones(1 << 24) for _ in range(3)]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    del made
    for size in range(1 << 22, (1 << 22) + 8):  # other work, in which an allocator may tidy up
        time.sleep(0.02)
        torch.ones(size).double()
print(faults)
"""


def test_memory_that_was_freed_is_used_again(cache_folder: Path) -> None:
    """What PyTorch takes for its results costs it no page faults, however large, and however long ago it was freed."""
    kept = Workforce("cpu", cache_folder, 1)._for_parents()
    environ = {**os.environ, **kept}
    said = subprocess.run([sys.executable, "-c", _ALLOCATES], env=environ, check=True, capture_output=True, text=True)
    assert int(said.stdout) < 10  # 48 huge pages at least, without


def test_a_gpu_s_processes_give_memory_back(cache_folder: Path) -> None:
    assert not {name for name in Workforce("cuda", cache_folder, 1)._for_parents() if "MALLOC" in name}
