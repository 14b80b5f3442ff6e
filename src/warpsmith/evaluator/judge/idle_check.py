"""Checks from outside, at moments when a candidate's process should be idle, that it is idle and its code unchanged.

What the kernel says about the threads of a process cannot be forged from inside. OpenMP threads spin for up to about
20 ms of CPU time after a region before they sleep, so the process gets many windows to show that it is idle.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from warpsmith.evaluator.judge.code_integrity import CodePages
from warpsmith.evaluator.judge.records import CandidateFailed, check_guards
from warpsmith.evaluator.judge.timing.process_usage import ProcessUsage
from warpsmith.model.evidence import AlteredCode, IdleProcess

_WINDOW_S = 0.008
_LOOKS = 4  # per window
_LATE_NS = 10_000_000  # on a busy machine a stop may take milliseconds; the time counts as the candidate's anyway
_LATE_REPLIES, _LATE_SHARE = 5, 0.1  # a hypervisor that takes a CPU away delays a stop too, but seldom
_PATIENCE_S = 1.0  # on a busy machine 20 ms of CPU time take ten times as long


class IdleCheck:
    """Watches one host, from before its candidate is loaded."""

    def __init__(self, pid: int, backend: str, without: Collection[str] = ()) -> None:
        self._usage = ProcessUsage(pid)
        self._backend = backend
        self._without = without
        self._threads_before = len(self._usage.threads())
        self._code = CodePages(pid) if "integrity" not in without else None

    def check(self, late_ns: Sequence[int] = ()) -> None:
        """Raise CandidateFailed for a candidate that changed code of others or left work running.

        `late_ns`: for how long its threads went on inside the kernel after each reply.
        """
        if self._code is not None:
            check_guards(AlteredCode(self._code.changed_file()), self._without)
        if "background" in self._without:
            return
        late_ms = [ns / 1e6 for ns in late_ns if ns > _LATE_NS]
        if len(late_ms) >= max(_LATE_REPLIES, _LATE_SHARE * len(late_ns)):
            count = self._threads_before
            check_guards(IdleProcess(self._backend, count, count, sum(late_ms), sum(late_ms)), self._without)
        deadline = time.monotonic() + (0.0 if self._backend == "cuda" else _PATIENCE_S)
        while True:
            try:
                check_guards(self._look(), self._without)
                return
            except CandidateFailed:
                if time.monotonic() > deadline:
                    raise

    def _look(self) -> IdleProcess:
        """Watch the threads for one window."""
        if self._backend == "cuda":  # a CUDA candidate has no reason to start threads: counting them is enough
            return IdleProcess(self._backend, self._threads_before, len(self._usage.threads()), 0.0, 0.0)
        before, start, runnable = self._usage.read().threads_ns, time.monotonic(), 0
        for _ in range(_LOOKS):
            time.sleep(_WINDOW_S / _LOOKS)
            runnable += "R" in self._usage.thread_states()
        watched_ms = (time.monotonic() - start) * 1e3
        after = self._usage.read().threads_ns
        used_ms = sum(after[t] - before.get(t, 0) for t in after) / 1e6
        # A thread that waits for a CPU uses no CPU time, and is not idle.
        busy_ms = max(used_ms, watched_ms * runnable / _LOOKS)
        return IdleProcess(self._backend, self._threads_before, len(after), busy_ms, watched_ms)
