"""Where the threads of a timed process run on the CPU.

Linux likes to wake a thread on the processor of the one that wakes it. All threads of an OpenMP region may then share
one processor while the others stand idle, until the scheduler's next look some milliseconds later: on two processors
that made half of a candidate's samples twice as long, and some of the baseline's (benchmarks/README.md). So the thread
that makes the calls is brought to one processor, and the other threads of its process get one each of the rest, the
busiest first. The thread that calls is free again before the clock starts: threads that it starts meanwhile may run
everywhere, and it is told the true number of processors.

Both sides are seated alike. While the candidate's process works the judge waits on another processor: else that
process, woken beside it, would begin there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import cycle


class Seats:
    """Of this process, and of the processes that it times."""

    def __init__(self) -> None:
        self._all = os.sched_getaffinity(0)
        self._first = {max(self._all)}  # the lowest have the machine's own work
        self._others = self._all - self._first

    def part(self, pid: int, used_ns: Mapping[str, int]) -> None:
        """Give each thread that a process has beside its first a processor, by what each has used so far: those that
        do nothing share with others."""
        busiest = sorted((int(name) for name in used_ns), key=lambda thread: used_ns[str(thread)], reverse=True)
        for thread, processor in zip((t for t in busiest if t != pid), cycle(sorted(self._others)), strict=False):
            _confine(thread, {processor})

    @contextlib.contextmanager
    def called_in(self, pid: int) -> Iterator[None]:
        """The first thread of another process works there, and we wait elsewhere."""
        _confine(pid, self._first)
        with self.aside():
            try:
                yield
            finally:
                _confine(pid, self._all)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """This thread stays off the processor of those that work."""
        _confine(0, self._others)
        try:
            yield
        finally:
            _confine(0, self._all)

    @contextlib.contextmanager
    def taken(self, used_ns: Mapping[str, int]) -> Iterator[None]:
        """For work of our own, in this thread and those that it has already: as another process has it."""
        self.part(os.getpid(), used_ns)
        _confine(0, self._first)
        _confine(0, self._all)
        try:
            yield
        finally:
            for name in used_ns:
                _confine(int(name), self._all)


def _confine(thread: int, processors: set[int]) -> None:
    """To some processors; without effect where there are none, or where the system does not let us."""
    if processors:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, processors)
