"""A baseline on the CPU: disturbed samples are repeated, and freed memory is used again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from warpsmith.evaluator.judge import baselines
from warpsmith.evaluator.judge.baselines import CpuBaseline, rough_time_s
from warpsmith.evaluator.judge.timing.process_usage import CpuUsage, ProcessUsage
from warpsmith.evaluator.supervisor.worker_pool import WorkerPool


class _Usage(ProcessUsage):
    """Gives the waits it is told, one for each attempt."""

    def __init__(self, waits: Sequence[int]) -> None:
        super().__init__(os.getpid())
        self._waits: Iterator[int] = iter(waits)
        self._reads = 0

    def read(self) -> CpuUsage:
        """Called three times for each attempt: before threads are pinned, before the clock starts, after it stops."""
        self._reads += 1
        return CpuUsage(0, {}, {"1": next(self._waits) if self._reads % 3 == 0 else 0}, 0, 0, 0)


def _baseline(
    monkeypatch: pytest.MonkeyPatch, waits: Sequence[int], times_ns: Sequence[int]
) -> tuple[CpuBaseline, list[int]]:
    """A baseline whose attempts wait and take these times, and the sets that it was called with."""
    called: list[int] = []
    clock = iter([tick for index, taken in enumerate(times_ns) for tick in (1000 * index, 1000 * index + taken)])

    def call() -> tuple[torch.Tensor, ...]:
        called.append(0)
        return (torch.zeros(1),)

    runner = CpuBaseline("eager", [call], lambda results=(): None, lambda: nullcontext(), _Usage(waits))
    monkeypatch.setattr(baselines, "repeat_until_awake", lambda act, most_ms: None)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))
    return runner, called


def test_an_undisturbed_sample_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, called = _baseline(monkeypatch, [4], [100])
    assert runner.sample(False, [0]) == 100
    assert called == [0]
    assert len(runner.outputs()) == 1


def test_a_disturbed_sample_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, called = _baseline(monkeypatch, [300, 50, 0], [400, 150, 101])
    assert runner.sample(False, [0]) == 101
    assert called == [0, 0, 0]
    assert len(runner.outputs()) == 1  # the last attempt's


def test_if_all_samples_are_disturbed_the_least_disturbed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, called = _baseline(monkeypatch, [300, 50, 60, 70, 80], [400, 150, 130, 170, 180])
    assert runner.sample(False, [0]) == 150
    assert called == [0] * 5


_ALLOCATES = """
import resource, time, torch
least = []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    made = [torch.ones(1 << 24) for _ in range(3)]
    least.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    del made
    for size in range(1 << 22, (1 << 22) + 8):  # other work, in which an allocator may tidy up
        time.sleep(0.02)
        torch.ones(size).double()
print(min(least))
"""


@pytest.mark.slow
def test_memory_that_was_freed_is_used_again(cache_folder: Path) -> None:
    """What PyTorch takes for its results costs few page faults, however large, and however long ago it was freed."""

    def page_faults(environ: dict[str, str]) -> int:
        command = [sys.executable, "-c", _ALLOCATES]
        return int(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout)

    kept = WorkerPool("cpu", cache_folder, 1)._server_environ()
    without = {name: value for name, value in os.environ.items() if name not in kept}
    assert page_faults({**os.environ, **kept}) < page_faults(without) / 4  # a gap in the heap may not fit


def test_a_gpu_s_processes_give_memory_back(cache_folder: Path) -> None:
    assert not {name for name in WorkerPool("cuda", cache_folder, 1)._server_environ() if "MALLOC" in name}


def test_threads_that_wait_for_each_other_do_not_make_a_short_call_look_long() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert rough_time_s(lambda: time.sleep(0.005 if torch.get_num_threads() > 1 else 0)) < 0.004
        assert torch.get_num_threads() == 2
        assert rough_time_s(lambda: time.sleep(0.005 if torch.get_num_threads() == 1 else 0)) < 0.004
    finally:
        torch.set_num_threads(before)
