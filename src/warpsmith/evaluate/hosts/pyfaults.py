"""What went wrong with a Python candidate, in words its author can use.

Used in the candidate's own processes; what comes out of them is a claim that can only harm the candidate itself.
"""

from __future__ import annotations

import traceback
from pathlib import Path

import torch

from warpsmith.core.errors import lacks_memory

_MOST_CHARS = 600
_QUOTED_LINES = 10
_NO_EXEC = "programs cannot be started while a candidate runs; compile at import, or when ModelNew is constructed"


class Fault(Exception):
    """A failure of the candidate, with its kind as `messages.Faulted` has it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def fault_of(error: BaseException, kind: str, files: Path) -> Fault:
    """What a candidate's code raised, with the place in the candidate's own files; `files` is their folder."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or lacks_memory(str(error)):
        kind = "memory"
    lines = str(error).strip().splitlines()
    said = " ".join(line.strip() for line in lines[:3] if line.strip())[:_MOST_CHARS]
    name = type(error).__name__
    if name == "CompilationError":  # Triton's: the kernel's lines, a mark under the place, and what is wrong there
        said = "\n".join(lines[-_QUOTED_LINES:])[-2 * _MOST_CHARS :]
    if isinstance(error, torch.OutOfMemoryError):  # the rest is about PyTorch's own allocator
        said = ". ".join(said.split(". ")[:2]).rstrip(".")
    hint = f"; {_NO_EXEC}" if isinstance(error, PermissionError) or "Operation not permitted" in said else ""
    return Fault(kind, f"{_place(error, files)}{name}{': ' if said else ''}{said}{hint}")


def _place(error: BaseException, files: Path) -> str:
    """The deepest line of the candidate's own code, e.g. "kernel.py:12: "."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: "
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent == files]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
