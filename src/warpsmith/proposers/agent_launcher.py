"""Starts the command of an agent: confined to writing in its folders, and ended with everything that it started.

    python -m warpsmith.proposers.agent_launcher SECONDS STOP-FILE FOLDER... -- COMMAND

Processes that the agent detaches become children of this one (a "subreaper") and are killed at the end. The agent ends
by itself, after SECONDS, when STOP-FILE appears, or when the process that started this one is gone. The confinement
(`landlock.restrict_writes`) keeps the agent from the run's log, the task, the cache of verdicts and other processes;
where the kernel has no Landlock it is left out. Status: that of the command, 124 after SECONDS, 125 after STOP-FILE.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from warpsmith.evaluator.sandbox.landlock import kernel_abi, restrict_writes

TIMED_OUT, STOPPED = 124, 125
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_END_S = 5.0  # to end what the agent started


def main(arguments: Sequence[str]) -> int:
    """Run the command and end what is left of it."""
    cut = list(arguments).index("--")
    seconds, stop, *folders = arguments[:cut]
    command = arguments[cut + 1]
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getppid()
    agent = os.fork()
    if agent == 0:
        _become(command, [Path(folder) for folder in folders])
    try:
        return _wait(agent, time.monotonic() + float(seconds), Path(stop), parent)
    finally:
        _end_all()


def _become(command: str, folders: Sequence[Path]) -> None:
    """In the forked process: confine it and execute the command. Does not return."""
    try:
        if abi := kernel_abi():
            restrict_writes(folders, abi)
        os.execv("/bin/sh", ["sh", "-c", command])
    except OSError as refused:
        os.write(2, f"the agent could not be started ({refused})\n".encode())
    finally:
        os._exit(126)


def _wait(agent: int, until: float, stop: Path, parent: int) -> int:
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == agent:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if ended:
            continue  # a process that the agent had detached
        if time.monotonic() >= until:
            return TIMED_OUT
        if stop.exists() or os.getppid() != parent:
            return STOPPED
        time.sleep(_POLL_S)


def _end_all() -> None:
    """Kill all descendants: again and again, because each one may start others until it is dead."""
    until = time.monotonic() + _END_S
    while time.monotonic() < until:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        found = _descendants()
        if not found:
            return
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_POLL_S / 4)


def _descendants() -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found, waiting = [], [os.getpid()]
    while waiting:
        above = waiting.pop()
        below = [process for process, parent in parents.items() if parent == above]
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
