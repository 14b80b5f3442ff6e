"""Runs one compiler command within limits: time, memory, output size, environment.

It knows nothing of candidates or caches. It guards against a source that makes the compiler run away; a
compiler that is itself taken over is outside what it covers.
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
_LONG_LINE = re.compile(r"([^\n]{4000})[^\n]+")  # nobody reads further, and patterns would take for ever

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
    log: str  # stdout and stderr together, cut: the first errors matter, and templates can print gigabytes
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
