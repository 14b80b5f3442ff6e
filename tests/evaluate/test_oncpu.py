"""What a claim of time is worth on the CPU: a made-up host that says what it likes, over a real process that works."""

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

from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Status
from warpsmith.evaluate.judging.meter import Meter
from warpsmith.evaluate.judging.oncpu import OnCpu
from warpsmith.evaluate.judging.ways import Idle, Pairs, Parties
from warpsmith.evaluate.messages import Sample, Sampled

MS = 1_000_000
WORKS_S = 0.02
_SPINS = "print(flush=True)\nwhile True: pass"
_SPINS_IN_A_THREAD = (
    f"import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()\n{_SPINS}"
)
_SLEEPS = "import time\nprint(flush=True)\ntime.sleep(60)"


class Worker:
    """A process that runs only when it is let go, as a host on its leash."""

    def __init__(self, code: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        with self._process.stdout as started:
            started.readline()
        self.pid = self._process.pid
        os.kill(self.pid, signal.SIGSTOP)

    def run(self, used_s: float) -> None:
        """Until it has used that much of a processor; a busy machine takes its time."""
        before = time.clock_gettime((~self.pid << 3) | 2)
        os.kill(self.pid, signal.SIGCONT)
        while time.clock_gettime((~self.pid << 3) | 2) - before < used_s:
            time.sleep(0.001)
        os.kill(self.pid, signal.SIGSTOP)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def start() -> Iterator[Callable[[str], Worker]]:
    begun: list[Worker] = []

    def begin(code: str) -> Worker:
        begun.append(Worker(code))
        return begun[-1]

    yield begin
    for worker in begun:
        worker.end()


def _way(worker: Worker, told: Sequence[tuple[int, int]], works_s: float = 0.0, **settings: Any) -> OnCpu:
    """A way whose candidate claims and takes (by our clock) what `told` says, and works as long as `works_s` says."""
    remaining = iter(told)
    peer = SimpleNamespace(pid=worker.pid, returns=False, renews=False, outer_ns=0)

    def ask(request: Sample, _expected: type[Sampled], _limit_s: float) -> Sampled:
        if not request.indices:
            return Sampled(0, 0, 0, "")
        if works_s:
            worker.run(works_s)
        claimed_ns, peer.outer_ns = next(remaining)
        return Sampled(claimed_ns, 0, 0, "")

    peer.ask = ask
    bench = SimpleNamespace(sets=(None, None), numbers=range(2))
    side = SimpleNamespace(flush=lambda: None)
    idle = Idle(usual_ns=MS, credible_ns=MS, main_ns=MS)
    return OnCpu(
        Parties(cast(Any, peer), cast(Any, bench), cast(Any, side), replace(Settings(), **settings), 1.0, idle)
    )


def _pairs(way: OnCpu, count: int) -> Pairs:
    return [(10.0 * MS, float(way.candidate([0]))) for _ in range(count)]


def test_claims_that_our_clock_bears_out_stand(start: Callable[[str], Worker]) -> None:
    way = _way(start(_SLEEPS), [(10 * MS, 11 * MS), (12 * MS, 13 * MS), (10 * MS, 40 * MS)])
    pairs = _pairs(way, 3)
    assert way.believed(pairs) == pairs
    assert way.objection(pairs) is None


def test_a_claim_a_little_below_the_fastest_sample_counts_as_that(start: Callable[[str], Worker]) -> None:
    way = _way(start(_SLEEPS), [(8 * MS, 30 * MS), (10 * MS, 11 * MS)])
    assert [taken_ns for _, taken_ns in way.believed(_pairs(way, 2))] == [10 * MS, 10 * MS]


def test_a_claim_far_below_it_counts_as_our_clock_has_it(start: Callable[[str], Worker]) -> None:
    way = _way(start(_SLEEPS), [(1 * MS, 31 * MS), (1 * MS, 11 * MS), (12 * MS, 13 * MS)])
    assert [taken_ns for _, taken_ns in way.believed(_pairs(way, 3))] == [30 * MS, 10 * MS, 12 * MS]


def test_a_pair_that_does_not_count_is_forgotten(start: Callable[[str], Worker]) -> None:
    way = _way(start(_SLEEPS), [(1 * MS, 2 * MS), (10 * MS, 12 * MS), (10 * MS, 14 * MS)])
    way.candidate([0])
    way.discard()
    assert [taken_ns for _, taken_ns in way.believed(_pairs(way, 2))] == [11 * MS, 11 * MS]


@pytest.mark.parametrize("code", [_SPINS, _SPINS_IN_A_THREAD], ids=["answering thread", "another thread"])
def test_a_process_that_works_longer_than_it_says_has_forged_its_clock(
    start: Callable[[str], Worker], code: str
) -> None:
    way = _way(start(code), [(MS, 200 * MS)] * 4, works_s=WORKS_S)
    found = way.objection(_pairs(way, 4))
    assert found is not None
    assert (found.status, found.attack) == (Status.REJECTED, 9)
    assert found.reason.startswith("forged clock: the candidate's process reports 1 ms for a sample, but used ")


def test_a_process_that_only_waits_has_not(start: Callable[[str], Worker]) -> None:
    """Somebody else had the processor: our clock shows a long time, and that alone proves nothing."""
    way = _way(start(_SLEEPS), [(MS, 200 * MS)] * 4)
    assert way.objection(_pairs(way, 4)) is None


def test_an_odd_sample_proves_nothing(start: Callable[[str], Worker]) -> None:
    """Two of four may have waited for a thread to wake up, and used the processor meanwhile."""
    way = _way(start(_SPINS), [(MS, 200 * MS)] * 2 + [(500 * MS, 501 * MS)] * 2, works_s=WORKS_S)
    assert way.objection(_pairs(way, 4)) is None


def test_without_its_guard_no_claim_is_doubted(start: Callable[[str], Worker]) -> None:
    way = _way(start(_SPINS), [(MS, 200 * MS)] * 2, works_s=WORKS_S, without=("clock",))
    pairs = _pairs(way, 2)
    assert way.believed(pairs) == pairs
    assert way.objection(pairs) is None


def test_the_meter_counts_each_thread(start: Callable[[str], Worker]) -> None:
    worker = start(_SPINS_IN_A_THREAD)
    before = Meter(worker.pid).read()
    worker.run(0.04)
    used = Meter(worker.pid).read()
    assert len(used.threads_ns) == 2
    assert 0 < used.main_since(before) < used.total_ns - before.total_ns
    assert used.least_since(before, processors=1) >= 40 * MS
    assert used.least_since(before, processors=64) == max(
        used.threads_ns[name] - before.threads_ns[name] for name in used.threads_ns
    )


def test_the_meter_of_a_process_that_has_ended_shows_nothing(start: Callable[[str], Worker]) -> None:
    worker = start(_SPINS)
    meter = Meter(worker.pid)
    before = meter.read()
    worker.end()
    assert meter.read().main_ns == 0
    assert before.main_ns > 0
