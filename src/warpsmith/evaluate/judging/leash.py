"""Stops a candidate's process whenever it has not been asked for anything.

A process that runs only between a request and its answer can do nothing outside the judge's clock: it can neither
work ahead on data that is there already, nor finish work after it has answered, nor take the processor from the
baseline. Stopping is the kernel's doing, which nothing inside the process can refuse; the timers that could make it
go on are refused by `seccomp`. Device work that was queued goes on: hosts wait for the device before they answer.
"""

from __future__ import annotations

import contextlib
import os
import signal


class Leash:
    """On one process, by a descriptor: its number may be somebody else's once it is gone."""

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    def hold(self) -> None:
        """Stop all its threads."""
        self._send(signal.SIGSTOP)

    def release(self) -> None:
        """Let them go on."""
        self._send(signal.SIGCONT)

    def close(self) -> None:
        """Let the process go for good; safe to call twice."""
        if self._fd >= 0:
            self.release()
            os.close(self._fd)
            self._fd = -1

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended: the next request says so
            signal.pidfd_send_signal(self._fd, number)
