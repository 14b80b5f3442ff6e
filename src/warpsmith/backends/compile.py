"""Runs one compiler command within limits: time, memory, output size, environment.

It knows nothing of candidates or caches. It guards against a source that makes the compiler run away; a
compiler that is itself taken over is outside what it covers.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from warpsmith.backends.stopping import check_stop

COMPILER_MEMORY_BYTES = 8 << 30
COMPILER_FILE_BYTES = 1 << 30
LOG_BYTES = 256 << 10
"""How much of a log is read: the first errors matter, and templates can print gigabytes."""

GROUP_END_S = 2.0
_LONG_LINE = re.compile(r"([^\n]{4000})[^\n]+")  # nobody reads further, and patterns would take for ever

_LOOK_S = 0.1  # how often a running compiler asks whether it is still wanted
_LOOK_BLINDLY_S = 0.02  # the same where the kernel does not tell when a process ends

# Limits are set by the shell in the child: a preexec function is not safe in a process with threads. The shell
# stays, beside a watcher that reads from us: when we are killed it reads the end and kills the whole group, so
# that no compiler outlives us. No death signal does that: it would end the driver and leave its stages running.
_LIMITED = """
ulimit -c 0; ulimit -f "$1" 2>/dev/null; ulimit -v "$2" 2>/dev/null; shift 2
exec 3<&0 </dev/null
{ read -r _ <&3; kill -9 0; } & watcher=$!
"$@" 3<&- & compiler=$!
exec 3<&-
wait "$compiler"; status=$?
kill -9 "$watcher"; wait "$watcher" 2>/dev/null
exit "$status"
"""

# Lines of a tool itself: a source can make the compiler print any words, but only after a file name.
_DIED = re.compile(
    r"^(?:\S*(?:g\+\+|clang\S*|cc1plus|collect2|as|ld)[\d.-]*: "
    r"(?:fatal error: |internal compiler error: |error: )?"
    r"(?:Killed|\w+ signal terminated program|out of memory|unable to execute command)"
    r"|nvcc error\s*: '[^']+' died|virtual memory exhausted|LLVM ERROR: out of memory)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CompilerRun:
    """How a compiler command ended."""

    status: int  # its exit status; negative: the signal that ended it
    log: str  # stdout and stderr together, cut at LOG_BYTES
    seconds: float
    timed_out: bool

    @property
    def killed(self) -> bool:
        """Whether it, or a stage it started, died instead of answering."""
        # nvcc returns 255 for ordinary errors of ptxas.
        by_signal = self.status < 0 or 128 < self.status < 255
        return self.timed_out or by_signal or (self.status != 0 and _DIED.search(self.log) is not None)


def run_compiler(
    command: Sequence[str], *, folder: Path, scratch: Path, environ: Mapping[str, str], limit_s: float
) -> CompilerRun:
    """Run a command in a folder, in a process group of its own that does not outlive the call."""
    # Nothing of the caller's environment reaches it but PATH: no keys, and no flags that a cache key misses.
    scrubbed = {
        "PATH": environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(scratch),
        "HOME": str(scratch),
    }
    blocks, kilobytes = str(COMPILER_FILE_BYTES // 512), str(COMPILER_MEMORY_BYTES // 1024)
    log_path = scratch / "compiler.log"
    begun = time.monotonic()
    alive, held_while_we_live = os.pipe2(os.O_CLOEXEC)
    try:
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _LIMITED, "sh", blocks, kilobytes, *command],
                cwd=folder,
                env=scrubbed,
                stdin=alive,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            timed_out = not _ended(process, limit_s)
        finally:
            # Also after a normal end: a driver that died may have left its stages running.
            _end_group(process)
    finally:
        os.close(alive)
        os.close(held_while_we_live)
    seconds = time.monotonic() - begun
    with log_path.open("rb") as written:
        text = _LONG_LINE.sub(r"\1", written.read(LOG_BYTES).decode("utf-8", "replace"))
    return CompilerRun(process.returncode, text, seconds, timed_out)


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether it ended within the limit; raises HarnessFault when it is no longer wanted."""
    deadline = time.monotonic() + limit_s
    poll, look_s, handle = select.poll(), _LOOK_BLINDLY_S, -1
    with suppress(OSError):  # an old kernel, or a container that forbids it
        handle = os.pidfd_open(process.pid)
        poll.register(handle, select.POLLIN)
        look_s = _LOOK_S
    try:
        while process.poll() is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            check_stop()
            poll.poll(1e3 * min(left_s, look_s))
        return True
    finally:
        if handle >= 0:
            os.close(handle)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a process group and wait for its end: a dying compiler still holds memory."""
    give_up = time.monotonic() + GROUP_END_S
    with suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if time.monotonic() > give_up:
                return  # only where nobody collects orphans: dead already, but still listed
            time.sleep(0.01)
