"""Puts a Python candidate's files into the build store, as they are; compiling them is the forge's part.

How such a folder is laid out, `core.build` says.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from warpsmith._version import __version__
from warpsmith.backends.build import Workshop
from warpsmith.backends.store import BuildStore
from warpsmith.core.build import MAIN, SOURCES, Artifact, BuildFailure
from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.config import Paths
from warpsmith.core.errors import HarnessFault


def python_name() -> str:
    """The interpreter, for people."""
    return f"python {platform.python_version()}"


def package_version(name: str) -> str:
    """An installed package's version without importing it; "" where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def store_of(workshop: Workshop) -> BuildStore:
    """Where this workshop keeps its builds."""
    return BuildStore((workshop.paths or Paths.from_environment(workshop.environ)).cache / "builds")


def key_of(parts: Sequence[str]) -> str:
    """One key from all that an outcome depends on."""
    digest = hashlib.sha256()
    for part in (__version__, "python", *parts):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def put_sources(
    workshop: Workshop, candidate: Candidate, files: Sequence[SourceFile], main: str, kind: str, compiler: str
) -> Artifact | BuildFailure:
    """The files as an artifact of this kind; the same files give the same folder."""
    store = store_of(workshop)
    key = key_of([kind, candidate.backend, main, compiler, *(word for f in files for word in (f.name, f.text))])
    known = store.load(key)
    if known is not None:
        return known
    try:
        with store.locked(key):
            known = store.load(key)
            if known is not None:
                return known
            with store.work_folder() as work:
                folder = work / "made"
                _write(folder, files, main)
                return store.publish(key, Artifact(folder, compiler, kind=kind), work)
    except OSError as fault:
        raise HarnessFault(f"the build cache cannot be used ({fault.strerror}); free or unlock it.") from fault


def _write(folder: Path, files: Sequence[SourceFile], main: str) -> None:
    (folder / SOURCES).mkdir(parents=True)
    (folder / MAIN).write_text(main, encoding="utf-8")
    for file in files:
        (folder / SOURCES / file.name).write_text(file.text, encoding="utf-8", errors="replace")
