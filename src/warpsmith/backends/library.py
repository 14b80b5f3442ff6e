"""The headers that ship with the package: candidates include them as <warpsmith/...>, those for the CPU in `cpu/`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from warpsmith.model.candidate import Candidate

LIBRARY = Path(__file__).resolve().parent.parent / "kernels" / "include"
"""The folder of the headers."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](warpsmith/[\w./]+)[>"]', re.MULTILINE)
_SUFFIXES = (".cuh", ".h")


def library_headers(*texts: str, folder: Path = LIBRARY) -> Mapping[str, str]:
    """The headers of the library that sources include, directly or through other headers, with their texts."""
    found: dict[str, str] = {}
    waiting = [name for text in texts for name in _INCLUDE.findall(text)]
    while waiting:
        name = waiting.pop()
        if name not in found and (text := _library_files(folder).get(name)) is not None:
            found[name] = text
            waiting += _INCLUDE.findall(text)
    return dict(sorted(found.items()))


def library_digest(headers: Mapping[str, str]) -> str:
    """A hash of headers, so that a changed header gives another build."""
    return hashlib.sha256("\0".join(f"{name}\0{text}" for name, text in headers.items()).encode()).hexdigest()[:16]


def digest_with_headers(candidate: Candidate) -> str:
    """The digest of a candidate and of the headers that it includes: what its build depends on."""
    headers = library_headers(*(file.text for file in candidate.files))
    return f"{candidate.digest}-{library_digest(headers)}" if headers else candidate.digest


@cache
def _library_files(folder: Path) -> Mapping[str, str]:
    files = (file for file in folder.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8", errors="replace") for file in files}
