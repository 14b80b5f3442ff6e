"""Keeps finished builds by the hash of everything that went into them.

One folder per key, put in place by one rename: a reader sees a whole build or none. A lock per key makes
threads and processes that want the same build wait for one compiler run. Nothing here compiles.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from warpsmith.backends.stopping import pause
from warpsmith.core.build import Artifact, BuildFailure
from warpsmith.core.evaluation import Resources
from warpsmith.core.owned import OwnedFolder, same_file, sweep

LIBRARY = "candidate.so"
MODULE = "module"  # the folder of a Python build
_RECORD = "build.json"
_STALE_S = 24 * 3600.0
"""A work folder without an owner's mark that is this old was left by an older version."""

_LOOK_S = 0.02  # how often a lock that somebody else holds is asked for


class BuildStore:
    """The builds under one folder; any number of processes may share it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def load(self, key: str) -> Artifact | BuildFailure | None:
        """A finished build, marked as cached; None where there is none or it is damaged."""
        folder = self._folder(key)
        try:
            record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            seconds = float(record["seconds"])
            if not math.isfinite(seconds):
                return None
            if not record["ok"]:
                return BuildFailure(_text(record, "reason"), seconds) if record["reason"] else None
            library = folder / _place(str(record["kind"]))
            if _size(library) != record["library_bytes"]:
                return None
            return Artifact(
                library=library,
                compiler=_text(record, "compiler"),
                resources=tuple(_resources(r) for r in record["resources"]),
                warnings=_text(record, "warnings"),
                seconds=seconds,
                cached=True,
                kind=_text(record, "kind"),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Held by one thread of one process at a time; released by the system if its holder dies."""
        folder = self._root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / key
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                while not _took(handle):
                    pause(_LOOK_S)
                # Its last holder may have removed the file while we waited: then we hold a lock nobody sees.
                if same_file(handle, path):
                    break
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(handle)

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A fresh folder on the store's own file system, removed afterwards whatever happens."""
        parent = self._root / "work"
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent, unowned_s=_STALE_S)
        folder = OwnedFolder(parent)
        try:
            yield folder.path
        finally:
            folder.remove()

    def publish(self, key: str, outcome: Artifact | BuildFailure, work: Path) -> Artifact | BuildFailure:
        """Put an outcome in place; an artifact's library or folder is moved from the work folder."""
        staged = Path(tempfile.mkdtemp(dir=work))
        if isinstance(outcome, Artifact):
            library = staged / _place(outcome.kind)
            outcome.library.rename(library)
            library.chmod(0o555 if library.is_file() else 0o755)
            record: dict[str, object] = {
                "ok": True,
                "kind": outcome.kind,
                "compiler": outcome.compiler,
                "resources": [asdict(r) for r in outcome.resources],
                "warnings": outcome.warnings,
                "library_bytes": _size(library),
            }
        else:
            record = {"ok": False, "reason": outcome.reason}
        record["seconds"] = outcome.seconds
        (staged / _RECORD).write_text(json.dumps(record), encoding="utf-8")
        staged.chmod(0o755)
        folder = self._folder(key)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # only ever a damaged one: the caller holds the lock
        staged.rename(folder)
        if isinstance(outcome, BuildFailure):
            return outcome
        return replace(outcome, library=folder / _place(outcome.kind))

    def _folder(self, key: str) -> Path:
        return self._root / key[:2] / key


def _text(record: Mapping[str, object], name: str) -> str:
    found = record[name]
    if not isinstance(found, str):
        raise TypeError(name)
    found.encode()  # what a verdict cannot quote is no text
    return found


def _resources(record: object) -> Resources:
    if not isinstance(record, dict):
        raise TypeError("resources")
    numbers = {k: v for k, v in record.items() if k != "kernel" and type(v) is int and 0 <= v < 1 << 63}
    if len(numbers) + 1 != len(record):
        raise ValueError("resources")
    return Resources(_text(record, "kernel"), **numbers)


def _place(kind: str) -> str:
    return LIBRARY if kind == "library" else MODULE


def _size(library: Path) -> int:
    """Of the file, or of all files of a folder together."""
    if library.is_dir():
        return sum(file.stat().st_size for file in library.rglob("*") if file.is_file())
    return library.stat().st_size


def _took(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
