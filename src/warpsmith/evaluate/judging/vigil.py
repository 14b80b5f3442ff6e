"""Watches a candidate's process from outside, at moments when it should be idle.

What the kernel says about its threads cannot be forged from inside. OpenMP keeps threads, which spin for up to
some 20 ms of processor time after a region before they sleep: so the process gets many windows to show that it is idle.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from warpsmith.core.guarding import Aftermath, Altered
from warpsmith.evaluate.judging.findings import Condemned, face
from warpsmith.evaluate.judging.integrity import Code

_WINDOW_S = 0.008
_GLANCES = 4  # per window
_PATIENCE_S = 1.0  # on a busy machine those 20 ms take ten times as long


class Vigil:
    """Over one host, from before its candidate is loaded."""

    def __init__(self, pid: int, backend: str, without: Collection[str] = ()) -> None:
        self._pid = pid
        self._backend = backend
        self._without = without
        self._threads_before = len(self._threads())
        self._code = Code(pid) if "integrity" not in without else None

    def watch(self) -> None:
        """Condemn a candidate that changed code of others or leaves work behind."""
        if self._code is not None:
            face(Altered(self._code.altered()), self._without)
        if "background" in self._without:
            return
        deadline = time.monotonic() + (0.0 if self._backend == "cuda" else _PATIENCE_S)
        while True:
            try:
                face(self._look(), self._without)
                return
            except Condemned:
                if time.monotonic() > deadline:
                    raise

    def _look(self) -> Aftermath:
        if self._backend == "cuda":  # no reason for a thread of its own: counting them takes no time
            return Aftermath(self._backend, self._threads_before, len(self._threads()), 0.0, 0.0)
        before, start, runnable = self._run_ns(), time.monotonic(), 0
        for _ in range(_GLANCES):
            time.sleep(_WINDOW_S / _GLANCES)
            runnable += self._runnable()
        watched_ms = (time.monotonic() - start) * 1e3
        after = self._run_ns()
        used_ms = sum(after[t] - before.get(t, 0) for t in after) / 1e6
        # A thread that waits for a processor uses none, and is not idle.
        busy_ms = max(used_ms, watched_ms * runnable / _GLANCES)
        return Aftermath(self._backend, self._threads_before, len(after), busy_ms, watched_ms)

    def _threads(self) -> list[str]:
        try:
            return os.listdir(f"/proc/{self._pid}/task")
        except OSError:
            return []  # it has ended: the next request says so

    def _runnable(self) -> bool:
        """Whether any thread runs or wants to."""
        states = [self._read(thread, "stat").rpartition(")")[2].split()[:1] for thread in self._threads()]
        return ["R"] in states

    def _run_ns(self) -> dict[str, int]:
        """Processor time of each thread so far; 0 on a kernel without these figures."""
        return {thread: int((self._read(thread, "schedstat").split() or ["0"])[0]) for thread in self._threads()}

    def _read(self, thread: str, name: str) -> str:
        try:
            with open(f"/proc/{self._pid}/task/{thread}/{name}", encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""  # the thread has ended
