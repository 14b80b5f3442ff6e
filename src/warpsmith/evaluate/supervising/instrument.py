"""Runs one program under a watch: it ends within its time, and it never outlives us.

For sanitizers, which are programs that run a candidate. Limits of memory and files are the sandbox's part, inside the
program; the output that is read back is bounded.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from warpsmith.backends.stopping import check_stop

OUTPUT_BYTES = 256 << 10
_LOOK_S = 0.1
_GROUP_END_S = 2.0

# The shell stays beside the program and reads from us: when we are killed it reads the end and kills the group.
_WATCHED = """
ulimit -c 0
exec 3<&0 </dev/null
{ read -r _ <&3; kill -9 0; } & watcher=$!
"$@" 3<&- & program=$!
exec 3<&-
wait "$program"; status=$?
kill -9 "$watcher"; wait "$watcher" 2>/dev/null
exit "$status"
"""


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    status: int  # its exit status, as a shell gives it: above 128 a signal
    output: str  # the beginning of what it wrote to both streams
    seconds: float
    timed_out: bool


def run_watched(
    command: Sequence[str], *, folder: Path, environ: Mapping[str, str], limit_s: float, log: Path
) -> Ended:
    """Run a command in a folder, in a process group of its own; its output goes to `log`."""
    begun = time.monotonic()
    alive, held_while_we_live = os.pipe2(os.O_CLOEXEC)
    try:
        with log.open("wb") as written:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", *command],
                cwd=folder,
                env=dict(environ),
                stdin=alive,
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            timed_out = not _ended(process, begun + limit_s)
        finally:
            _end_group(process)
    finally:
        os.close(alive)
        os.close(held_while_we_live)
    with log.open("rb") as read:
        text = read.read(OUTPUT_BYTES).decode("utf-8", "replace")
    return Ended(process.returncode, text, time.monotonic() - begun, timed_out)


def _ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Whether it ended in time; raises HarnessFault when it is no longer wanted."""
    handle = os.pidfd_open(process.pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        while process.poll() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            check_stop()
            poll.poll(1e3 * min(left_s, _LOOK_S))
        return True
    finally:
        os.close(handle)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + _GROUP_END_S
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < give_up:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.01)
