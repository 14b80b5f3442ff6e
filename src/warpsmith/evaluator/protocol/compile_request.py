"""What the supervisor asks of a compile worker, and how compiling can end. Known to both; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class CompileStatus(StrEnum):
    """How compiling a Python candidate ended."""

    OK = "ok"
    BUILD_FAILED = "build"  # a compiler reported errors
    RAISED = "raised"  # the candidate's code raised an exception
    OUT_OF_MEMORY = "memory"
    TIMED_OUT = "timeout"
    DIED = "died"  # the process ended without a report; its text names the signal, if one ended it
    KILLED = "killed"  # somebody killed the process, as the system does where memory is used up
    NOT_SET_UP = "set-up"  # device or sandbox failed before the candidate's code ran


@dataclass(frozen=True)
class CompileCall:
    """One call that makes a Triton kernel compile; the first five fields run parallel."""

    names: tuple[str, ...]
    roles: tuple[str, ...]
    origins: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    numbers: Mapping[str, float | int | bool]


@dataclass(frozen=True)
class CompileRequest:
    """The payload of a compile worker."""

    folder: str  # with `main` and `sources`; the only writable folder
    call: Mapping[str, Any]  # the fields of a PythonCall
    environ: Mapping[str, str]
    readable: tuple[str, ...]
    kind: str  # of the device
    device: int
    threads: int
    limit_s: float
    drop_user: bool  # as root, whether the process becomes another user
    calls: tuple[CompileCall, ...] = ()  # made on the device, one after the other; () if importing is enough

    def to_json(self) -> str:
        """The request as a payload."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> CompileRequest:
        """The request that `to_json` wrote."""
        fields = json.loads(text)
        fields["readable"] = tuple(fields["readable"])
        fields["calls"] = tuple(CompileCall(**call) for call in fields["calls"])
        return CompileRequest(**fields)
