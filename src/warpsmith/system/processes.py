"""Runs a program that ends within its time limit and never outlives this process, and lets waiting work be cancelled.

    with stoppable(stop):
        run_watched(["g++", ...], ...)  # raises HarnessFault soon after `stop` is set

`stoppable` cancels nothing by itself: code that waits calls `check_stop` or `pause`. For compilers, sanitizers and
commands of the user. The sandbox is not applied here; the part of the output that is read back is bounded.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from warpsmith.model.errors import HarnessFault

OUTPUT_BYTES = 256 << 10
_POLL_S = 0.1
_POLL_WITHOUT_PIDFD_S = 0.02  # where the kernel does not tell when a process ends
_GROUP_END_S = 2.0

# The shell sets the limits, because a preexec function is not safe in a process with threads. A watcher beside the
# program reads from a pipe of ours: when we are killed, the watcher reads the end of the pipe and kills the group. A
# death signal would end a compiler driver only and leave its stages running.
_SCRIPT = """
ulimit -c 0; ulimit -f "$1" 2>/dev/null; ulimit -v "$2" 2>/dev/null
exec 3<&0 4<"$3" </dev/null; shift 3
{ read -r _ <&3; kill -9 0; } & watcher=$!
"$@" 3<&- <&4 4<&- & program=$!
exec 3<&- 4<&-
wait "$program"; status=$?
kill -9 "$watcher"; wait "$watcher" 2>/dev/null
exit "$status"
"""

_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """Within the block, waiting calls of this thread raise HarnessFault once `stop` is set."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


def may_be_stopped() -> bool:
    """True if this thread's work can be cancelled, so that it must not block in the kernel."""
    return _STOP.get() is not None


def check_stop() -> None:
    """Raise HarnessFault if this thread's work was cancelled."""
    stop = _STOP.get()
    if stop is not None and stop.is_set():
        raise HarnessFault("the build was cancelled: the evaluator was closed.")


def pause(seconds: float) -> None:
    """Sleep; raise HarnessFault as soon as this thread's work is cancelled."""
    stop = _STOP.get()
    if stop is None:
        time.sleep(seconds)
    else:
        stop.wait(seconds)
    check_stop()


@dataclass(frozen=True)
class ProcessResult:
    """How a program ended."""

    status: int  # its exit status as a shell reports it: above 128, the signal that ended it plus 128
    output: str  # the first OUTPUT_BYTES of its output
    seconds: float
    timed_out: bool


def tool_answer(
    command: Sequence[str], *, limit_s: float, environ: Mapping[str, str] | None = None, stdin: str = ""
) -> str | None:
    """The standard output of a tool that is asked something short, such as its version; None if it fails."""
    try:
        answer = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=limit_s, env=environ, input=stdin
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def run_watched(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    limit_s: float,
    log: Path,
    folder: Path | None = None,
    stdin: Path = Path(os.devnull),
    errors: Path | None = None,
    file_bytes: int | None = None,
    memory_bytes: int | None = None,
) -> ProcessResult:
    """Run a command in a process group of its own, which is killed at the end.

    Standard output goes to the file `log`, standard error too unless `errors` names another file. `folder` is the
    working directory; `file_bytes` and `memory_bytes` limit written files and address space.
    """
    begun = time.monotonic()
    blocks = "unlimited" if file_bytes is None else str(file_bytes // 512)
    kilobytes = "unlimited" if memory_bytes is None else str(memory_bytes // 1024)
    alive, held_while_we_live = os.pipe2(os.O_CLOEXEC)
    try:
        with log.open("wb") as stdout, (errors or Path(os.devnull)).open("wb") as stderr:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "sh", blocks, kilobytes, str(stdin), *command],
                cwd=folder,
                env=dict(environ),
                stdin=alive,
                stdout=stdout,
                stderr=stderr if errors else subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            timed_out = not _ends_before(process, begun + limit_s)
        finally:
            _kill_group(process)  # also after a normal end: the program may have left processes behind
    finally:
        os.close(alive)
        os.close(held_while_we_live)
    with log.open("rb") as written:
        text = written.read(OUTPUT_BYTES).decode("utf-8", "replace")
    return ProcessResult(process.returncode, text, time.monotonic() - begun, timed_out)


def _ends_before(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """True if the process ends in time; raises HarnessFault if this thread's work is cancelled."""
    poll, poll_s, handle = select.poll(), _POLL_WITHOUT_PIDFD_S, -1
    with suppress(OSError):  # an old kernel, or a container that forbids it
        handle = os.pidfd_open(process.pid)
        poll.register(handle, select.POLLIN)
        poll_s = _POLL_S
    try:
        while process.poll() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            check_stop()
            poll.poll(1e3 * min(left_s, poll_s))
        return True
    finally:
        if handle >= 0:
            os.close(handle)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process group and wait for its end: a dying compiler still holds memory."""
    give_up = time.monotonic() + _GROUP_END_S
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < give_up:  # later only where nobody collects orphans: they are dead, but still listed
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.01)
