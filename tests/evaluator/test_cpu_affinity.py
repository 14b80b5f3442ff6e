"""Threads of a timed process get processors of their own, and the thread that calls keeps its freedom."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.processes import KilledProcess

from warpsmith.evaluator.judge.timing.cpu_affinity import CpuAffinity
from warpsmith.evaluator.judge.timing.process_usage import ProcessUsage

ALL = os.sched_getaffinity(0)
pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="needs two processors")
_SPINS_AND_SLEEPS = """
import threading, time
def spin():
    while True: pass
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
threading.Thread(target=spin, daemon=True).start()
time.sleep(0.2)
print(threading.get_native_id(), *(t.native_id for t in threading.enumerate()[1:]), flush=True)
time.sleep(60)
"""


@pytest.fixture
def threads() -> Iterator[tuple[int, int, int]]:
    """Of another process: the first (which is its number), one that sleeps, one that works."""
    with KilledProcess([sys.executable, "-c", _SPINS_AND_SLEEPS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first, sleeps, works = map(int, process.stdout.readline().split())
        assert first == process.pid
        yield first, sleeps, works


def test_threads_have_processors_of_their_own_the_busiest_first(threads: tuple[int, int, int]) -> None:
    first, sleeps, works = threads
    CpuAffinity().spread_threads(first, ProcessUsage(first).read().threads_ns)

    others = sorted(ALL - {max(ALL)})
    assert os.sched_getaffinity(first) == ALL
    assert os.sched_getaffinity(works) == {others[0]}
    assert os.sched_getaffinity(sleeps) == {others[1 % len(others)]}  # shares where there is no other


def test_the_first_thread_is_called_to_one_processor_and_let_go(threads: tuple[int, int, int]) -> None:
    first, *_ = threads
    with CpuAffinity().pin_process(first):
        assert os.sched_getaffinity(first) == {max(ALL)}
        assert os.sched_getaffinity(0) == ALL - {max(ALL)}
    assert os.sched_getaffinity(first) == ALL
    assert os.sched_getaffinity(0) == ALL


def test_our_own_work_begins_there_and_may_use_all() -> None:
    mine = ProcessUsage(os.getpid()).read().threads_ns
    with CpuAffinity().own_threads_pinned(mine):
        assert os.sched_getaffinity(0) == ALL  # what asks for the number of processors gets the true one
    assert {frozenset(os.sched_getaffinity(int(name))) for name in mine if _lives(name)} == {frozenset(ALL)}


def test_a_process_that_is_gone_is_nobody_s_trouble() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    affinity = CpuAffinity()
    assert ProcessUsage(process.pid).read().threads_ns == {}
    affinity.spread_threads(process.pid, {str(process.pid): 1})
    with affinity.pin_process(process.pid):
        pass
    assert os.sched_getaffinity(0) == ALL


def test_a_single_processor_is_left_as_it_is() -> None:
    os.sched_setaffinity(0, {min(ALL)})
    try:
        affinity = CpuAffinity()
        with affinity.judge_moved_away(), affinity.own_threads_pinned({str(os.getpid()): 1}):
            assert os.sched_getaffinity(0) == {min(ALL)}
    finally:
        os.sched_setaffinity(0, ALL)


def test_a_thread_that_has_no_processor_is_seen_to_wait(threads: tuple[int, int, int]) -> None:
    first, _, works = threads
    usage = ProcessUsage(first)
    os.sched_setaffinity(works, {min(ALL)})
    spins = f"import os\nos.sched_setaffinity(0, {{{min(ALL)}}})\nwhile True: 1"
    with KilledProcess([sys.executable, "-c", spins]):
        before = usage.read()
        waited_ns = 0
        for _ in range(200):  # a busy machine takes its time
            subprocess.run(["sleep", "0.05"], check=True)
            waited_ns = usage.read().waited_since(before)
            if waited_ns > 10_000_000:
                break
        assert waited_ns > 10_000_000


def _lives(name: str) -> bool:
    return os.path.exists(f"/proc/self/task/{name}")
