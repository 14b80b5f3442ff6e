"""The CPU time of a process and of its threads, as the kernel counts it.

A process cannot forge this figure, and the load of the machine does not add to it. CPU time that a thread used between
a request and its reply is therefore a lower bound of the time that passed, whatever the process's own clock says. The
bound is not tight: a process may sleep, or let its threads work in turn.

The kernel also counts how long a thread was ready to run and had no CPU: other processes disturbed such a sample.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of the kernel's clock ids for other processes
_STOPPED = frozenset("TtZX")
_STOP_WAIT_S = 0.005  # stopping takes about 0.05 ms, more on a busy machine
_POLL_S = 0.0001
_OTHERS_SHARE = 0.02  # of the CPU time of the thread that answers: what other threads may use beside it


@dataclass(frozen=True)
class CpuUsage:
    """CPU time of one process so far, in nanoseconds."""

    main_ns: int  # of the thread that answers requests
    threads_ns: Mapping[str, int]  # of each living thread
    waits_ns: Mapping[str, int]  # how long each thread was ready to run and had no CPU
    main_wait_ns: int  # the same for the thread that answers requests
    reader_wait_ns: int  # the same for the thread that reads these figures: the judge's
    total_ns: int  # of all threads, ended ones included

    def main_thread_since(self, before: CpuUsage) -> int:
        """CPU time of the thread that answers requests."""
        return self.main_ns - before.main_ns

    def shortest_since(self, before: CpuUsage, processors: int) -> float:
        """The shortest wall time in which the process can have used its CPU time: a thread runs on one CPU at a time,
        and all threads together on no more CPUs than there are."""
        busiest_ns = max((used - before.threads_ns.get(name, 0) for name, used in self.threads_ns.items()), default=0)
        return max(busiest_ns, (self.total_ns - before.total_ns) / processors)

    def undisturbed_since(self, before: CpuUsage, passed_ns: int) -> int:
        """How much of the time that passed belongs to this process: all of it, less what other processes took.

        If one thread did all the work, that is at least its CPU time, and at least the time that passed less the time
        for which this thread or the reader's was ready to run and had no CPU. That may include time after the reply.
        If several threads worked, a thread may have waited for another of them, and everything counts.
        """
        used_ns, total_ns = self.main_thread_since(before), self.total_ns - before.total_ns
        if total_ns - used_ns > _OTHERS_SHARE * used_ns:
            return passed_ns
        waited_ns = self.main_wait_ns - before.main_wait_ns + self.reader_wait_ns - before.reader_wait_ns
        return min(passed_ns, max(total_ns, passed_ns - waited_ns))

    def waited_since(self, before: CpuUsage) -> int:
        """The longest time that one thread waited for a CPU."""
        return max((ns - before.waits_ns.get(name, 0) for name, ns in self.waits_ns.items()), default=0)


class ProcessUsage:
    """Reads the CPU usage of one process; all figures are 0 once the process has ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = (~pid << 3) | _PROCESS_CLOCK

    def read_stopped(self) -> CpuUsage:
        """The usage of a process that is being stopped: the kernel's figures for a running thread lag behind."""
        deadline = time.monotonic() + _STOP_WAIT_S
        while not _STOPPED.issuperset(self.thread_states()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return self.read()

    def read(self) -> CpuUsage:
        """The usage of a process that may be running."""
        used, waits = {}, {}
        for thread in self.threads():
            used[thread], waits[thread], *_ = [*map(int, self._read(thread, "schedstat").split()), 0, 0]
        main = str(self._pid)
        return CpuUsage(used.get(main, 0), used, waits, waits.get(main, 0), _own_wait_ns(), self.total_ns())

    def total_ns(self) -> int:
        """CPU time of all threads, ended ones included."""
        try:
            return time.clock_gettime_ns(self._clock)
        except OSError:
            return 0

    def threads(self) -> list[str]:
        """The ids of all living threads."""
        try:
            return os.listdir(f"/proc/{self._pid}/task")
        except OSError:
            return []

    def thread_states(self) -> set[str]:
        """The one-letter states of proc(5) that the threads are in."""
        return {self._state(thread) for thread in self.threads()}

    def moving(self) -> dict[str, str]:
        """The ids and states of the threads that a stop has not reached yet."""
        states = {thread: self._state(thread) for thread in self.threads()}
        return {thread: state for thread, state in states.items() if state not in _STOPPED}

    def waited_ns(self, thread: str) -> int:
        """How long a thread was ready to run and had no CPU."""
        return int((self._read(thread, "schedstat").split() or ["0", "0"])[1])

    def _state(self, thread: str) -> str:
        return self._read(thread, "stat").rpartition(")")[2].strip()[:1] or "Z"

    def _read(self, thread: str, name: str) -> str:
        try:
            with open(f"/proc/{self._pid}/task/{thread}/{name}", encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""  # the thread has ended


def _own_wait_ns() -> int:
    """How long this thread was ready to run and had no CPU."""
    try:
        with open("/proc/thread-self/schedstat", encoding="utf-8") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError):
        return 0
