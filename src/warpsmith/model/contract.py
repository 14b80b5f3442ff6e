"""The exact entry point a candidate must offer for one task and backend.

The same object is the text a proposer reads and the argument list the harness calls with, so that the
two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


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


class CallForm(StrEnum):
    """How a Python candidate is called."""

    LAUNCH = "launch"  # a function that writes into the outputs
    MODULE = "module"  # a class that is constructed once; its objects are called and return the outputs
    FUNCTION = "function"  # a function that returns the outputs


@dataclass(frozen=True)
class PythonCall:
    """How a Python candidate is called, once per set of tensors.

    Arguments are JSON: `{"$": "x"}` stands for the tensor or number of the task named x, anything else for itself.
    """

    form: CallForm
    name: str  # of the function or class in the candidate's file
    arguments: str  # JSON: a list
    keywords: str = "{}"  # JSON: an object
    init: str = "[[], {}]"  # JSON: positional and keyword arguments of the class
    returned: tuple[str, ...] = ()  # the outputs it returns, in order; the others it writes
    tf32: bool = False  # whether the task's precision class lets PyTorch's own products use TF32

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> PythonCall:
        """The call from the JSON form of its fields."""
        return PythonCall(**{**fields, "form": CallForm(fields["form"]), "returned": tuple(fields["returned"])})


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
    call: PythonCall | None = None  # where a candidate is Python

    @property
    def size_arguments(self) -> tuple[Argument, ...]:
        """The axes and scalars, in order: the parameters of `workspace_bytes`."""
        return tuple(a for a in self.arguments if a.kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR))
