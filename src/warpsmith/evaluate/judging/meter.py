"""How much processor time a candidate's process has used, as the kernel counts it.

No process can forge that figure, and no load of the machine adds to it: while others have the processor, it stands
still. What a thread used between a request and its answer has passed as time in between, whatever the process's own
clock says. It is a lower bound only: a process may sleep, or let its threads work in turn.

The kernel also counts how long a thread could have run and had no processor. That tells a sample that others have
disturbed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

_PROCESS_CLOCK = 2  # CPUCLOCK_SCHED of the kernel's clock ids for other processes
_STANDING = frozenset("TtZX")
_PATIENCE_S = 0.005  # to stop takes some 0.05 ms, more where others use the processors
_GLANCE_S = 0.0001


@dataclass(frozen=True)
class Usage:
    """Of one process so far, in nanoseconds."""

    main_ns: int  # of the thread that answers requests
    threads_ns: Mapping[str, int]  # of each that is there
    waits_ns: Mapping[str, int]  # how long each was ready, and another had the processor
    total_ns: int  # of all, those that have ended included

    def main_since(self, before: Usage) -> int:
        """What the answering thread used."""
        return self.main_ns - before.main_ns

    def least_since(self, before: Usage, processors: int) -> float:
        """The shortest time in which all this can have been used: a thread runs on one processor at a time, and all
        of them together on no more than there are."""
        busiest_ns = max((used - before.threads_ns.get(name, 0) for name, used in self.threads_ns.items()), default=0)
        return max(busiest_ns, (self.total_ns - before.total_ns) / processors)

    def waited_since(self, before: Usage) -> int:
        """The longest that a thread had no processor."""
        return max((ns - before.waits_ns.get(name, 0) for name, ns in self.waits_ns.items()), default=0)


class Meter:
    """On one process that is stopped, or about to be: the kernel's figure for a running thread is a little behind."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._clock = (~pid << 3) | _PROCESS_CLOCK

    def read(self) -> Usage:
        """What it has used; nothing where the kernel keeps no such figures, or the process has ended."""
        deadline = time.monotonic() + _PATIENCE_S
        threads = self._threads()
        while not all(self._stands(thread) for thread in threads) and time.monotonic() < deadline:
            time.sleep(_GLANCE_S)
            threads = self._threads()
        return self.glance()

    def glance(self) -> Usage:
        """The same for a process that goes on, such as this one."""
        shares = {thread: self._share(thread) for thread in self._threads()}
        used = {thread: used_ns for thread, (used_ns, _) in shares.items()}
        waits = {thread: waited_ns for thread, (_, waited_ns) in shares.items()}
        try:
            total_ns = time.clock_gettime_ns(self._clock)
        except OSError:
            total_ns = 0
        return Usage(used.get(str(self._pid), 0), used, waits, total_ns)

    def _threads(self) -> list[str]:
        try:
            return os.listdir(f"/proc/{self._pid}/task")
        except OSError:
            return []

    def _stands(self, thread: str) -> bool:
        return self._read(thread, "stat").rpartition(")")[2].strip()[:1] in _STANDING

    def _share(self, thread: str) -> tuple[int, int]:
        used_ns, waited_ns, *_ = [*map(int, self._read(thread, "schedstat").split()), 0, 0]
        return used_ns, waited_ns

    def _read(self, thread: str, name: str) -> str:
        try:
            with open(f"/proc/{self._pid}/task/{thread}/{name}", encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return "Z" if name == "stat" else ""  # the thread has ended
