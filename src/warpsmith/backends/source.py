"""Reads a candidate from a file and finds its backend by the file's suffix, for Python also by its content."""

from __future__ import annotations

import re
from pathlib import Path

from warpsmith.backends.python_source import MODEL, python_traits
from warpsmith.model.build import Backend, DeviceKind
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import CandidateError
from warpsmith.system.plugins import plugin, plugins

MAX_SOURCE_BYTES = 1 << 20
MODULES = "torch_module"
_NATIVE = ("cpu", "cuda")  # with --entry, files of these backends are sources of torch extensions


def read_candidate(path: Path, backend: str | None = None, entry: str = "") -> Candidate:
    """The candidate in one file; its backend follows from suffix and content unless the caller names one.

    With an `entry`, the file is Python or a torch extension, and its function of that name is called.
    """
    if backend is None and path.suffix.lower() != ".py":
        backend = backend_of(path)  # before reading: a wrong suffix is the better error message
    text = _read(path)
    if backend is None:
        chosen = MODULES if entry else _backend_of_text(path, text)
    else:
        chosen = MODULES if entry and backend in _NATIVE else backend_named(backend).name
    # Compiler drivers use a shell, so characters that are special in a shell are replaced.
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", path.name).lstrip("-.+")[-100:] or "candidate"
    return Candidate((SourceFile(name, text),), chosen, entry=entry.strip())


def devices_of(candidate: Candidate) -> tuple[DeviceKind, ...]:
    """The kinds of device that a candidate can run on, the more likely one first."""
    backend = backend_named(candidate.backend)
    if candidate.backend != MODULES:
        return backend.devices
    suffix = Path(candidate.main.name).suffix.lower()
    if suffix == ".py":
        return (DeviceKind.CUDA,) if python_traits(candidate.main.text).cuda else backend.devices
    return (DeviceKind.CUDA,) if suffix in backend_named("cuda").suffixes else tuple(reversed(backend.devices))


def _backend_of_text(path: Path, text: str) -> str:
    traits = python_traits(text)
    if traits.model:
        return MODULES
    if traits.launch and traits.triton:
        return "triton"
    raise CandidateError(
        f"{path.name} is no candidate: a Python file defines the class {MODEL}, or `launch` with Triton kernels; "
        "to call another function of it, name it with --entry."
    )


def backend_of(path: Path) -> str:
    """The name of the backend for files with this suffix."""
    known: dict[str, Backend] = plugins("warpsmith.backends")
    for name, candidate_backend in sorted(known.items()):
        if path.suffix.lower() in candidate_backend.suffixes:
            return name
    endings = ", ".join(dict.fromkeys(s for _, b in sorted(known.items()) for s in b.suffixes))
    raise CandidateError(f"no backend takes {path.name!r}: its name must end in one of {endings}.")


def backend_named(name: str) -> Backend:
    """A backend by name; raises a UsageError that lists the known names."""
    found: Backend = plugin("warpsmith.backends", name)
    return found


def _read(path: Path) -> str:
    try:
        if not path.is_file():
            what = "is not a file" if path.exists() else "does not exist"
            raise CandidateError(f"{path} {what}: give the path of one source file.")
        size = path.stat().st_size
        if size > MAX_SOURCE_BYTES:
            raise CandidateError(f"{path} has {size} bytes: a candidate may have {MAX_SOURCE_BYTES} at most.")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise CandidateError(f"{path} is not UTF-8 text (byte {wrong.start}): save it as UTF-8.") from None
    except OSError as fault:
        raise CandidateError(f"{path} cannot be read ({fault.strerror}): check its permissions.") from None
    if "\0" in text:
        raise CandidateError(f"{path} holds a NUL byte, so it is no source text: give the source file.")
    if not text.strip():
        raise CandidateError(f"{path} is empty: write the entry point that `warpsmith contract` shows.")
    return text.replace("\r\n", "\n")
