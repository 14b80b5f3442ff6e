"""Runs one compiler command with limits on time, memory, output size and environment.

The limits stop a source that makes the compiler run without end. A source that takes over the compiler is not covered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.system.processes import run_watched

COMPILER_MEMORY_BYTES = 8 << 30
COMPILER_FILE_BYTES = 1 << 30
_LONG_LINE = re.compile(r"([^\n]{4000})[^\n]+")  # the rest is cut: patterns would take very long

# Lines that a tool prints itself: words that a source makes the compiler print come after a file name.
_DIED = re.compile(
    r"^(?:\S*(?:g\+\+|clang\S*|cc1plus|collect2|as|ld)[\d.-]*: "
    r"(?:fatal error: |internal compiler error: |error: )?"
    r"(?:Killed|\w+ signal terminated program|out of memory|unable to execute command)"
    r"|nvcc error\s*: '[^']+' died|virtual memory exhausted|LLVM ERROR: out of memory)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class CompilerRun:
    """The result of a compiler command."""

    status: int  # its exit status; negative: the signal that ended it
    log: str  # the beginning of stdout and stderr together: template errors can fill gigabytes
    seconds: float
    timed_out: bool

    @property
    def killed(self) -> bool:
        """Whether the compiler or a process that it started was killed, crashed or ran out of time."""
        # 255 is not a signal: nvcc returns it for ordinary errors of ptxas.
        by_signal = self.status < 0 or 128 < self.status < 255
        return self.timed_out or by_signal or (self.status != 0 and _DIED.search(self.log) is not None)


def run_compiler(
    command: Sequence[str], *, folder: Path, scratch: Path, environ: Mapping[str, str], limit_s: float
) -> CompilerRun:
    """Run a command in a folder; its process group is killed when the call ends."""
    # The command gets only PATH of the caller's environment: no API keys, and no flags that the cache key lacks.
    scrubbed = {
        "PATH": environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(scratch),
        "HOME": str(scratch),
    }
    done = run_watched(
        command,
        folder=folder,
        environ=scrubbed,
        limit_s=limit_s,
        log=scratch / "compiler.log",
        file_bytes=COMPILER_FILE_BYTES,
        memory_bytes=COMPILER_MEMORY_BYTES,
    )
    return CompilerRun(done.status, _LONG_LINE.sub(r"\1", done.output), done.seconds, done.timed_out)
