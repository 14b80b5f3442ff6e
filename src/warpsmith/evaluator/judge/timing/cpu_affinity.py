"""Which CPUs the threads of a timed process run on.

Linux prefers to wake a thread on the CPU of the thread that wakes it. All threads of an OpenMP region may then share
one CPU while the other CPUs are idle, until the scheduler balances them some milliseconds later. On two CPUs this made
half of a candidate's samples, and some of the baseline's, twice as long (benchmarks/README.md). So before a sample the
calling thread is moved to one CPU, and the other threads of its process are pinned to one each of the remaining CPUs,
the busiest thread first. The calling thread is unpinned before the clock starts: threads that it starts may run
anywhere, and it sees the true number of CPUs.

Candidate and baseline are treated alike. While the candidate's process works, the judge waits on another CPU: otherwise
the process would be woken on the judge's CPU.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import cycle


class CpuAffinity:
    """Pins threads of this process and of the processes that it times."""

    def __init__(self) -> None:
        self._all = os.sched_getaffinity(0)
        self._first = {max(self._all)}  # the system's own work prefers the lowest CPUs
        self._others = self._all - self._first

    def spread_threads(self, pid: int, used_ns: Mapping[str, int]) -> None:
        """Pin each thread of a process, except the first, to a CPU of its own, the busiest thread first; idle threads
        share CPUs. `used_ns`: CPU time by thread."""
        busiest = sorted((int(name) for name in used_ns), key=lambda thread: used_ns[str(thread)], reverse=True)
        for thread, processor in zip((t for t in busiest if t != pid), cycle(sorted(self._others)), strict=False):
            _pin(thread, {processor})

    @contextlib.contextmanager
    def pin_process(self, pid: int) -> Iterator[None]:
        """Pin the first thread of another process to the first CPU, and this thread to the others."""
        _pin(pid, self._first)
        with self.judge_moved_away():
            try:
                yield
            finally:
                _pin(pid, self._all)

    @contextlib.contextmanager
    def judge_moved_away(self) -> Iterator[None]:
        """Keep this thread off the first CPU, and let it run as soon as it is ready to: threads of the candidate that
        spin after their work would delay the moment at which this thread sees a reply. Only root may do the latter."""
        _pin(0, self._others)
        _schedule(os.SCHED_FIFO, 1)
        try:
            yield
        finally:
            _schedule(os.SCHED_OTHER, 0)
            _pin(0, self._all)

    @contextlib.contextmanager
    def own_threads_pinned(self, used_ns: Mapping[str, int]) -> Iterator[None]:
        """Pin the threads of this process as `spread_threads` and `pin_process` pin those of a candidate."""
        self.spread_threads(os.getpid(), used_ns)
        _pin(0, self._first)
        _pin(0, self._all)
        try:
            yield
        finally:
            for name in used_ns:
                _pin(int(name), self._all)


def _schedule(policy: int, priority: int) -> None:
    """Set how this thread is scheduled; no effect if the system refuses."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def _pin(thread: int, processors: set[int]) -> None:
    """Restrict a thread to these CPUs; no effect if there are none, or if the system refuses."""
    if processors:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, processors)
