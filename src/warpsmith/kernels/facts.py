"""What is known of the kernels of the collection: one file per device in `kernels/facts`.

`benchmarks/collection_record.py` writes the files; `read_facts` is their only reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from warpsmith.backends.library import library_digest, library_headers
from warpsmith.model.candidate import Candidate
from warpsmith.system.files import put_in_place

FACTS = Path(__file__).resolve().parent / "facts"


class KernelState(StrEnum):
    """How far a kernel has come on one device."""

    VERIFIED = "verified"  # with a certificate
    JUDGED = "judged, not verified"
    NOT_VERIFIED = "judged, verification failed"
    NOT_VALID = "judged, not valid"
    CHANGED = "changed since it was judged"
    NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class KernelFacts:
    """What is known of one kernel on one device."""

    task: str
    family: str
    candidate: str  # `identity` of the kernel that was judged
    status: str  # a value of `Status`, or "fault" where nothing could be judged
    reason: str
    speedup: float | None  # over PyTorch eager
    interval: tuple[float, float] | None
    latency_ms: tuple[float, ...]  # by workload
    eager_ms: tuple[float, ...]
    share_of_floor: tuple[float, ...]
    error: float | None  # the largest over its limit, of all workloads
    verified: bool | None  # None: not tried
    objection: str  # why it is not verified
    seconds: float
    any_shape: bool = False  # verification tested other shapes than the workloads'
    date: str = ""  # "": that of the file
    versions: Mapping[str, str] = field(default_factory=dict)  # {}: those of the file
    lineage: str = ""  # the run it came from, in one sentence

    @property
    def share(self) -> float | None:
        """The share of the hardware's limit in the worst workload."""
        return min(self.share_of_floor, default=None)


@dataclass(frozen=True)
class DeviceFacts:
    """What is known of the kernels on one device."""

    device: str  # the name of the GPU: "NVIDIA H200"
    date: str
    versions: Mapping[str, str]
    kernels: Mapping[str, KernelFacts]  # by task: "warpsmith-100/matmul"


_FILE = TypeAdapter(DeviceFacts)


@cache
def read_facts(folder: Path = FACTS) -> tuple[DeviceFacts, ...]:
    """All that is known, device by device."""
    return tuple(_FILE.validate_json(file.read_bytes()) for file in sorted(folder.glob("*.json")))


def write_facts(path: Path, facts: DeviceFacts) -> None:
    """Write the file of one device, whole or not at all."""
    put_in_place(path, _FILE.dump_json(facts, indent=1) + b"\n", 0o644)


def read_device(path: Path) -> DeviceFacts | None:
    """The file of one device; None if there is none."""
    return _FILE.validate_json(path.read_bytes()) if path.exists() else None


def identity(candidate: Candidate) -> str:
    """A name for a kernel as it is compiled: another text, or another header that it includes, is another kernel."""
    headers = library_headers(*(file.text for file in candidate.files))
    return f"{candidate.id}-{library_digest(headers)[:8]}"


def state_of(candidate: Candidate, facts: KernelFacts | None) -> KernelState:
    """How far a kernel has come."""
    if facts is None or facts.status in ("fault", "not_judged"):
        return KernelState.NOT_JUDGED
    if facts.candidate != identity(candidate):
        return KernelState.CHANGED
    if facts.status != "ok":
        return KernelState.NOT_VALID
    if facts.verified is None:
        return KernelState.JUDGED
    return KernelState.VERIFIED if facts.verified else KernelState.NOT_VERIFIED
