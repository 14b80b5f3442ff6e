"""The exact entry point a candidate must offer for one task and backend.

The same object is the text a proposer reads and the argument list the harness calls with, so that the
two cannot drift apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ArgumentKind(StrEnum):
    """What the harness passes for an argument."""

    INPUT = "input"  # const T*: an input or state tensor
    OUTPUT = "output"  # T*: a tensor to write, completely
    TABLE = "table"  # const void* const*: all state tensors, when there are too many to name
    AXIS = "axis"  # int64_t: the extent of an axis
    SCALAR = "scalar"  # a number of the task
    WORKSPACE = "workspace"  # void*: scratch memory of workspace_bytes(...) bytes, contents undefined
    STREAM = "stream"  # void*: the cudaStream_t to launch on; null on the CPU


@dataclass(frozen=True)
class Argument:
    """One parameter of the entry point."""

    name: str
    kind: ArgumentKind
    ctype: str  # as written in the declaration, e.g. "const float*"
    meaning: str = ""  # e.g. "float32 [rows, cols], row-major"
    origin: str = ""  # the task's name for it, where C does not allow that name

    @property
    def source(self) -> str:
        """The tensor, axis or scalar of the task that it stands for."""
        return self.origin or self.name


@dataclass(frozen=True)
class Contract:
    """The interface of one task for one backend."""

    task: str
    backend: str
    entry: str  # name of the entry point, "launch"
    arguments: tuple[Argument, ...]
    table: tuple[str, ...]  # tensor names behind the TABLE argument, in order; () where there is none
    header: str  # the code force-included before a candidate
    text: str  # the contract in words and code, for people and prompts
    libraries: tuple[str, ...] = ()  # what a candidate may link, because the task allows it

    @property
    def size_arguments(self) -> tuple[Argument, ...]:
        """The axes and scalars, in order: the parameters of `workspace_bytes`."""
        return tuple(a for a in self.arguments if a.kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR))
