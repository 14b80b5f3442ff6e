"""The judge's clock decides on the CPU: a simulated host that reports any time, over a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from warpsmith.evaluator.judge.timing import process_usage
from warpsmith.evaluator.judge.timing.cpu_sampler import CpuSampler
from warpsmith.evaluator.judge.timing.process_usage import CpuUsage, ProcessUsage
from warpsmith.evaluator.judge.timing.sampler import Pairs, RequestCost
from warpsmith.evaluator.protocol.messages import CallSets, CallsMade
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings

MS = 1_000_000
WORKS_S = 0.02
_SPINS = "print(flush=True)\nwhile True: pass"
_SPINS_IN_A_THREAD = (
    f"import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()\n{_SPINS}"
)
_SLEEPS = "import time\nprint(flush=True)\ntime.sleep(60)"


class Worker:
    """A process that runs only when it is resumed, like a host."""

    def __init__(self, code: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        with self._process.stdout as started:
            started.readline()
        self.pid = self._process.pid
        self._stop()

    def run(self, used_s: float) -> None:
        """Until it has used that much CPU time."""
        before = time.clock_gettime((~self.pid << 3) | 2)
        os.kill(self.pid, signal.SIGCONT)
        while time.clock_gettime((~self.pid << 3) | 2) - before < used_s:
            time.sleep(0.001)
        self._stop()

    def _stop(self) -> None:
        """Stop it and wait until it has stopped: on a busy machine it waits for a CPU to do so, and that counts."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(autouse=True)
def judge_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times of these tests are made up, and a busy machine must not change them."""
    monkeypatch.setattr(process_usage, "_own_wait_ns", lambda: 0)


@pytest.fixture
def start() -> Iterator[Callable[[str], Worker]]:
    begun: list[Worker] = []

    def begin(code: str) -> Worker:
        begun.append(Worker(code))
        return begun[-1]

    yield begin
    for worker in begun:
        worker.end()


def _sampler(worker: Worker, told: Sequence[tuple[float, int]], works_s: float = 0.0, **settings: Any) -> CpuSampler:
    """A sampler whose candidate reports and takes (by the judge's clock) the times in `told`, and uses `works_s` of
    CPU."""
    remaining = iter(told)
    host = SimpleNamespace(pid=worker.pid, returns_tensors=False, copies_state=False, round_trip_ns=0)

    def ask(_request: CallSets, _expected: type[CallsMade], _limit_s: float) -> CallsMade:
        if works_s:
            worker.run(works_s)
        claimed_ns, host.round_trip_ns = next(remaining)
        return CallsMade(int(claimed_ns), 0)

    host.ask = ask
    buffers = SimpleNamespace(sets=(None, None), set_numbers=range(2))
    runner = SimpleNamespace(flush=lambda: None)
    cost = RequestCost(typical_ns=MS, deducted_ns=MS, main_cpu_ns=MS)
    return CpuSampler(
        cast(Any, host), cast(Any, buffers), cast(Any, runner), replace(Settings(), **settings), 1.0, cost
    )


def _pairs(sampler: CpuSampler, count: int) -> Pairs:
    return [(10.0 * MS, float(sampler.time_candidate([0]))) for _ in range(count)]


def test_a_sample_is_disturbed_where_threads_waited_for_an_unknown_time(
    start: Callable[[str], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that waited for 3 of 10 ms; one thread, whose waiting is known and not counted."""
    sampler = _sampler(start(_SLEEPS), [(10 * MS, 10 * MS)] * 2)
    before = CpuUsage(0, {}, {}, 0, 0, 0)
    waited = CpuUsage(9 * MS, {}, {"1": 3 * MS}, 3 * MS, 0, 18 * MS)
    usages = iter([before, waited, before, replace(waited, total_ns=9 * MS)])
    monkeypatch.setattr(ProcessUsage, "read_stopped", lambda _: next(usages))
    sampler.time_candidate([0])
    assert sampler.last_disturbed()
    sampler.time_candidate([0])
    assert not sampler.last_disturbed()


def _counted(sampler: CpuSampler, count: int) -> list[float]:
    return [taken_ns for _, taken_ns in sampler.corrected_pairs(_pairs(sampler, count))]


def test_more_threads_than_the_baseline_has_gain_nothing(start: Callable[[str], Worker]) -> None:
    """A process that uses 20 ms of CPU time, and takes 2 ms by the clock."""
    for threads, least_ms in ((0, 0), (1, 19), (2, 9.5)):
        sampler = _sampler(start(_SPINS), [(2 * MS, 2 * MS)], WORKS_S)
        sampler._processors, sampler.threads = 4, threads
        assert (sampler.time_candidate([0]) >= least_ms * MS > 0) == (threads > 0)


@pytest.mark.parametrize("watched", [False, True])
def test_a_process_cannot_see_that_it_is_watched(
    start: Callable[[str], Worker], monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    """Before both kinds of request the caches are flushed and all its threads but the first are pinned."""
    sampler, done = _sampler(start(_SPINS_IN_A_THREAD), [(2 * MS, 2 * MS)]), list[str]()
    sampler.runner = cast(Any, SimpleNamespace(flush=lambda: done.append("flush")))
    sampler.buffers = cast(
        Any, SimpleNamespace(sets=(None,) * 3, set_numbers=range(3), check_order=lambda _undone: None)
    )
    plain = sampler.host.ask

    def ask(request: Any, *rest: Any) -> Any:
        done.append(f"ask {sorted(os.sched_getaffinity(0))}")
        return plain(request, CallsMade, 1.0)

    host = cast(Any, sampler.host)
    host.ask = host.ask_watched = ask
    monkeypatch.setattr(sampler._affinity, "spread_threads", lambda pid, _used: done.append(f"pin {pid}"))
    sampler.watch_candidate([0, 1]) if watched else sampler.time_candidate([0, 1])
    others = os.sched_getaffinity(0) - {max(os.sched_getaffinity(0))}
    assert done == ["flush", f"pin {sampler.host.pid}", f"ask {sorted(others or os.sched_getaffinity(0))}"]


def test_the_judge_s_clock_less_the_cost_of_a_request_counts(start: Callable[[str], Worker]) -> None:
    sampler = _sampler(start(_SLEEPS), [(10 * MS, 11 * MS), (5 * MS, 13 * MS), (0, 41 * MS)])
    assert _counted(sampler, 3) == [10 * MS, 12 * MS, 40 * MS]
    assert sampler.objection() is None


def test_a_report_can_only_make_a_sample_longer(start: Callable[[str], Worker]) -> None:
    sampler = _sampler(start(_SLEEPS), [(10.5 * MS, 11 * MS), (99 * MS, 11 * MS), (-5 * MS, 11 * MS)])
    assert _counted(sampler, 3) == [10.5 * MS, 11 * MS, 10 * MS]


def test_a_pair_that_does_not_count_is_forgotten(start: Callable[[str], Worker]) -> None:
    sampler = _sampler(start(_SLEEPS), [(1 * MS, 2 * MS), (10 * MS, 12 * MS), (10 * MS, 14 * MS)])
    sampler.time_candidate([0])
    sampler.discard_last()
    assert _counted(sampler, 2) == [11 * MS, 13 * MS]


def test_a_sample_that_other_processes_disturbed_counts_without_that(start: Callable[[str], Worker]) -> None:
    usage = CpuUsage(0, {}, {}, 0, 0, 0)
    alone = replace(usage, main_ns=3 * MS, total_ns=3 * MS, main_wait_ns=6 * MS)
    assert alone.undisturbed_since(usage, 10 * MS) == 4 * MS
    assert replace(alone, main_wait_ns=20 * MS).undisturbed_since(usage, 10 * MS) == 3 * MS  # waited after its reply
    assert replace(alone, reader_wait_ns=1 * MS).undisturbed_since(usage, 10 * MS) == 3 * MS  # the judge waited
    assert replace(alone, total_ns=12 * MS).undisturbed_since(usage, 10 * MS) == 10 * MS  # for its own threads, perhaps
    assert replace(alone, main_wait_ns=0).undisturbed_since(usage, 10 * MS) == 10 * MS  # slept


@pytest.mark.parametrize("code", [_SPINS, _SPINS_IN_A_THREAD], ids=["answering thread", "another thread"])
def test_a_process_that_works_longer_than_it_says_has_forged_its_clock(
    start: Callable[[str], Worker], code: str
) -> None:
    sampler = _sampler(start(code), [(MS, 200 * MS)] * 4, works_s=WORKS_S)
    _pairs(sampler, 4)
    found = sampler.objection()
    assert found is not None
    assert (found.status, found.attack) == (Status.REJECTED, 9)
    assert found.reason.startswith("forged clock: the candidate's process reports 1 ms for a sample, but used ")


def test_a_process_that_only_waits_has_not(start: Callable[[str], Worker]) -> None:
    """Another process had the CPU: the judge's clock shows a long time, which alone proves nothing."""
    sampler = _sampler(start(_SLEEPS), [(MS, 200 * MS)] * 4)
    _pairs(sampler, 4)
    assert sampler.objection() is None


def test_an_odd_sample_proves_nothing(start: Callable[[str], Worker]) -> None:
    """Two of four samples may have waited for a thread to wake up, and used CPU time meanwhile."""
    sampler = _sampler(start(_SPINS), [(MS, 200 * MS)] * 2 + [(500 * MS, 501 * MS)] * 2, works_s=WORKS_S)
    _pairs(sampler, 4)
    assert sampler.objection() is None


def test_without_its_guard_no_clock_is_called_forged(start: Callable[[str], Worker]) -> None:
    sampler = _sampler(start(_SPINS), [(MS, 200 * MS)] * 2, works_s=WORKS_S, without=("clock",))
    _pairs(sampler, 2)
    assert sampler.objection() is None


def test_cpu_usage_counts_each_thread(start: Callable[[str], Worker]) -> None:
    worker = start(_SPINS_IN_A_THREAD)
    before = ProcessUsage(worker.pid).read()
    worker.run(0.04)
    used = ProcessUsage(worker.pid).read()
    assert len(used.threads_ns) == 2
    assert 0 < used.main_thread_since(before) < used.total_ns - before.total_ns
    assert used.shortest_since(before, processors=1) >= 40 * MS
    assert used.shortest_since(before, processors=64) == max(
        used.threads_ns[name] - before.threads_ns[name] for name in used.threads_ns
    )


def test_the_cpu_usage_of_a_process_that_has_ended_is_zero(start: Callable[[str], Worker]) -> None:
    worker = start(_SPINS)
    usage = ProcessUsage(worker.pid)
    before = usage.read()
    worker.end()
    assert usage.read().main_ns == 0
    assert before.main_ns > 0
