"""Keeps finished builds by the hash of everything that went into them.

One folder per key, put in place by one rename: a reader sees a whole build or none. A lock per key makes
threads and processes that want the same build wait for one compiler run. Nothing here compiles.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from warpsmith.core.build import Artifact, BuildFailure
from warpsmith.core.evaluation import Resources

LIBRARY = "candidate.so"
_RECORD = "build.json"
_STALE_S = 24 * 3600.0
"""A work folder this old was left by a process that was killed: no compiler runs that long."""


class BuildStore:
    """The builds under one folder; any number of processes may share it."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def load(self, key: str) -> Artifact | BuildFailure | None:
        """A finished build, marked as cached; None where there is none or it is damaged."""
        folder = self._folder(key)
        try:
            record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            if not record["ok"]:
                return BuildFailure(str(record["reason"]), float(record["seconds"]))
            library = folder / LIBRARY
            if library.stat().st_size != record["library_bytes"]:
                return None
            return Artifact(
                library=library,
                compiler=str(record["compiler"]),
                resources=tuple(Resources(**r) for r in record["resources"]),
                warnings=str(record["warnings"]),
                seconds=float(record["seconds"]),
                cached=True,
            )
        except (OSError, ValueError, KeyError, TypeError):
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
                fcntl.flock(handle, fcntl.LOCK_EX)
                # Its last holder may have removed the file while we waited: then we hold a lock nobody sees.
                if _same_file(handle, path):
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
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, key: str, outcome: Artifact | BuildFailure, work: Path) -> Artifact | BuildFailure:
        """Put an outcome in place; an artifact's library is moved from the work folder."""
        staged = Path(tempfile.mkdtemp(dir=work))
        if isinstance(outcome, Artifact):
            library = staged / LIBRARY
            outcome.library.rename(library)
            library.chmod(0o555)
            record: dict[str, object] = {
                "ok": True,
                "compiler": outcome.compiler,
                "resources": [asdict(r) for r in outcome.resources],
                "warnings": outcome.warnings,
                "library_bytes": library.stat().st_size,
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
        return Artifact(folder / LIBRARY, outcome.compiler, outcome.resources, outcome.warnings, outcome.seconds)

    def _folder(self, key: str) -> Path:
        return self._root / key[:2] / key


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _sweep(parent: Path) -> None:
    oldest = time.time() - _STALE_S
    for folder in parent.iterdir():
        with suppress(FileNotFoundError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
