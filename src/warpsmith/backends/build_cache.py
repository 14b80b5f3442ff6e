"""Keeps finished builds by the hash of all their inputs.

Each build is a folder that one rename puts in place: a reader sees a whole build or none. A lock per key makes threads
and processes that need the same build wait for one compiler run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from warpsmith.model.build import Artifact, ArtifactKind, BuildFailure
from warpsmith.model.errors import HarnessFault
from warpsmith.model.evaluation import Resources
from warpsmith.model.settings import Paths
from warpsmith.system.files import OwnedFolder, remove_tree, same_file, sweep
from warpsmith.system.locks import lock, open_lock_file

LIBRARY = "candidate.so"
MODULE = "module"  # the folder of a Python build
_RECORD = "build.json"
_STALE_S = 24 * 3600.0
"""A work folder without the name of an owner that is older than this was left by an earlier version."""
_ONCE_S = 2 * 3600.0
"""A build that is not used again is kept for so long: its evaluation has ended."""


class BuildCache:
    """The builds in one folder, which any number of processes may share."""

    def __init__(self, root: Path, *, reuse: bool = True) -> None:
        self._root = root
        self._reuse = reuse

    @staticmethod
    def of(paths: Paths) -> BuildCache:
        """The builds of these paths."""
        root = paths.cache / "builds"
        return BuildCache(root) if paths.reuse_builds else BuildCache(root / "once", reuse=False)

    def key(self, key: str) -> str:
        """The key of a build; where builds are not used again, one that no other build has."""
        return key if self._reuse else content_key([key, secrets.token_hex(16)])

    @property
    def headers(self) -> Path:
        """The folder of compiled headers: no builds, they only make builds faster."""
        return self._root / "headers"

    def load(self, key: str) -> Artifact | BuildFailure | None:
        """A finished build, marked as cached; None where it is missing or damaged."""
        folder = self._folder(key)
        try:
            record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
            seconds = float(record["seconds"])
            if not math.isfinite(seconds):
                return None
            if not record["ok"]:
                return BuildFailure(_text(record, "reason"), seconds) if record["reason"] else None
            library = folder / _place(ArtifactKind(record["kind"]))
            if _size(library) != record["library_bytes"]:
                return None
            return Artifact(
                library=library,
                compiler=_text(record, "compiler"),
                resources=tuple(_resources(r) for r in record["resources"]),
                warnings=_text(record, "warnings"),
                seconds=seconds,
                cached=True,
                kind=ArtifactKind(record["kind"]),
            )
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the lock of a key; the system releases it if this process dies."""
        folder = self._root / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / key
        while True:
            handle = open_lock_file(path)
            try:
                lock(handle)
                # If the last holder removed the file meanwhile, this lock is of a deleted file, and is taken again.
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

    def load_or_make(self, key: str, make: Callable[[], Artifact | BuildFailure]) -> Artifact | BuildFailure:
        """The cached build; else the result of `make`, which runs while this thread holds the lock of the key."""
        known = self.load(key)
        if known is not None:
            return known
        try:
            with self.locked(key):
                return self.load(key) or make()
        except OSError as fault:
            raise HarnessFault(
                f"the build cache in {self._root} cannot be used ({fault.strerror}); free or unlock it."
            ) from fault

    @contextmanager
    def work_folder(self) -> Iterator[Path]:
        """A new folder on the file system of the cache, always removed at the end."""
        parent = self._root / "work"
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent, unowned_s=_STALE_S)
        folder = OwnedFolder(parent)
        try:
            yield folder.path
        finally:
            folder.remove()

    def publish(self, key: str, outcome: Artifact | BuildFailure, work: Path) -> Artifact | BuildFailure:
        """Store a build result in the cache; the library or folder of an artifact is moved out of the work folder."""
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
        if not self._reuse:
            sweep(folder.parent, unowned_s=_ONCE_S)
        remove_tree(folder)  # a damaged build, if any: the caller holds the lock
        staged.rename(folder)
        if isinstance(outcome, BuildFailure):
            return outcome
        return replace(outcome, library=folder / _place(outcome.kind))

    def entries(self) -> dict[str, dict[str, bytes]]:
        """All finished builds by key, as files by name: what `adopt` takes on another machine."""
        found: dict[str, dict[str, bytes]] = {}
        for record in self._root.glob(f"??/*/{_RECORD}"):
            folder = record.parent
            files = [path for path in folder.rglob("*") if path.is_file()]
            found[folder.name] = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
        return found

    def adopt(self, key: str, files: Mapping[str, bytes]) -> None:
        """Store a build that another machine made, unless it is here already."""
        if self.load(key) is not None:
            return
        with self.locked(key), self.work_folder() as work:
            staged = Path(tempfile.mkdtemp(dir=work))
            for name, content in files.items():
                path = staged / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(0o644 if name == _RECORD else 0o555)
            staged.chmod(0o755)
            folder = self._folder(key)
            folder.parent.mkdir(parents=True, exist_ok=True)
            remove_tree(folder)
            staged.rename(folder)

    def _folder(self, key: str) -> Path:
        return self._root / key[:2] / key


def content_key(parts: Iterable[str]) -> str:
    """The SHA-256 of all inputs of a build, in hex digits."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _text(record: Mapping[str, object], name: str) -> str:
    found = record[name]
    if not isinstance(found, str):
        raise TypeError(name)
    found.encode()  # raises for text that cannot be written to a verdict
    return found


def _resources(record: object) -> Resources:
    if not isinstance(record, dict):
        raise TypeError("resources")
    numbers = {k: v for k, v in record.items() if k != "kernel" and type(v) is int and 0 <= v < 1 << 63}
    if len(numbers) + 1 != len(record):
        raise ValueError("resources")
    return Resources(_text(record, "kernel"), **numbers)


def _place(kind: ArtifactKind) -> str:
    return LIBRARY if kind is ArtifactKind.LIBRARY else MODULE


def _size(library: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    if library.is_dir():
        return sum(file.stat().st_size for file in library.rglob("*") if file.is_file())
    return library.stat().st_size
