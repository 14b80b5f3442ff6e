"""Reads a candidate from a file and decides by its ending which backend it is for."""

from __future__ import annotations

import re
from pathlib import Path

from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.errors import CandidateError
from warpsmith.core.protocols import Backend
from warpsmith.core.registry import plugin, plugins

MAX_SOURCE_BYTES = 1 << 20


def read_candidate(path: Path, backend: str | None = None) -> Candidate:
    """The candidate in one file; its backend by suffix unless the caller names one."""
    chosen = backend_of(path) if backend is None else backend_named(backend).name
    text = _read(path)
    # Compilers are driven through a shell: a name that a shell would read otherwise is spelled plainly.
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", path.name).lstrip("-.+")[-100:] or "candidate"
    return Candidate((SourceFile(name, text),), chosen)


def backend_of(path: Path) -> str:
    """The backend that takes files with this ending."""
    known: dict[str, Backend] = plugins("warpsmith.backends")
    for name, candidate_backend in sorted(known.items()):
        if path.suffix.lower() in candidate_backend.suffixes:
            return name
    endings = ", ".join(s for _, b in sorted(known.items()) for s in b.suffixes)
    raise CandidateError(f"no backend takes {path.name!r}: its name must end in one of {endings}.")


def backend_named(name: str) -> Backend:
    """One backend; an unknown name is a UsageError that lists the known ones."""
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
