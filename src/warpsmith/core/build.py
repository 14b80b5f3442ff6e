"""What a build gives: an artifact to load, or a diagnosis a proposer can act on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warpsmith.core.evaluation import Resources

# The folder of a Python artifact.
MAIN = "main"  # a file that holds the name of the file to import
SOURCES = "sources"  # the candidate's files
EXTENSIONS = "extensions"  # compiled ones
TRITON = "triton"  # Triton's cache


@dataclass(frozen=True)
class Target:
    """What to build for: a kind of device and its architecture."""

    kind: str  # "cpu" or "cuda"
    arch: str = "native"  # "native" on the CPU; "sm_90a" and the like on CUDA
    sanitized: bool = False  # CPU: with the compiler's checks of addresses and undefined behaviour, for verification


@dataclass(frozen=True)
class Artifact:
    """A built candidate, ready to load in a worker."""

    library: Path  # in the build cache; read-only; a folder where it is Python
    compiler: str  # name and version
    resources: tuple[Resources, ...] = ()
    warnings: str = ""  # trimmed
    seconds: float = 0.0
    cached: bool = False
    kind: str = "library"  # "library", "module" (Python, ready to import) or "sources" (Python, still to be forged)


@dataclass(frozen=True)
class BuildFailure:
    """Why there is no artifact: the trimmed diagnostics."""

    reason: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Availability:
    """Whether a backend can work here, and if not, what to do about it."""

    build: bool
    run: bool
    detail: str  # e.g. "g++ 12.2.0" or "no nvcc: install the CUDA toolkit or warpsmith[nvcc]"
