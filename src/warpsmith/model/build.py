"""Building a candidate: the target, the artifact or the reason why there is none, and the protocol of a backend."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.evaluation import Resources
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Task

# Names inside the folder of a Python artifact.
MAIN = "main"  # a file that holds the name of the file to import
SOURCES = "sources"  # the folder of the candidate's files
EXTENSIONS = "extensions"  # the folder of compiled extensions
EXTENSION_RECORD = "record.json"  # in that folder: for each name, the libraries built under it, in the order of calls
TRITON = "triton"  # the folder of Triton's cache


class DeviceKind(StrEnum):
    """Where kernels run."""

    CPU = "cpu"
    CUDA = "cuda"


class ArtifactKind(StrEnum):
    """What an artifact is."""

    LIBRARY = "library"  # a shared object
    MODULE = "module"  # a folder of Python files, ready to import
    SOURCES = "sources"  # a folder of Python files with kernels or extensions that are still to be compiled


@dataclass(frozen=True)
class Target:
    """What to build for: a kind of device and its architecture."""

    kind: DeviceKind
    arch: str = "native"  # "native" on the CPU; "sm_90a" and the like on CUDA
    sanitized: bool = False  # CPU only: with address and undefined-behaviour sanitizers


@dataclass(frozen=True)
class Artifact:
    """A built candidate."""

    library: Path  # in the build cache, read-only; a folder unless the kind is LIBRARY
    compiler: str  # name and version
    resources: tuple[Resources, ...] = ()
    warnings: str = ""  # trimmed
    seconds: float = 0.0
    cached: bool = False
    kind: ArtifactKind = ArtifactKind.LIBRARY


@dataclass(frozen=True)
class BuildFailure:
    """Why there is no artifact: the trimmed diagnostics."""

    reason: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Availability:
    """Whether this machine can build and run candidates of a backend; if not, `detail` says what to install."""

    build: bool
    run: bool
    detail: str  # e.g. "g++ 12.2.0" or "no nvcc: install the CUDA toolkit or warpsmith[nvcc]"


@runtime_checkable
class Backend(Protocol):
    """A language a candidate can be written in: its contract, its compiler."""

    name: str  # "cpu", "cuda"
    suffixes: tuple[str, ...]  # file endings it takes, e.g. (".cu", ".cuh")
    devices: tuple[DeviceKind, ...]  # where its kernels run

    def configured(self, paths: Paths, limits: Limits) -> Backend:
        """The same backend with another cache folder and other limits."""
        ...

    def available(self) -> Availability:
        """Whether this machine can build and run candidates."""
        ...

    def contract(self, task: Task, entry: str = "") -> Contract:
        """The entry point for one task; `entry` replaces the usual one (see `Candidate.entry`)."""
        ...

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Compile, or say why not. Cached by content; any number of threads may call it."""
        ...
