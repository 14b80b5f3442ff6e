"""Files that are replaced in one step, and temporary folders that are removed after their owner died.

A reader of a replaced file never sees half of it. The owner of a temporary folder keeps a file in it locked; the system
releases the lock when the owner dies, and the next `sweep` removes the folder. Each folder has one owner.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from warpsmith.system.locks import lock, open_lock_file, try_lock


def put_in_place(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write beside the file, then replace it; folders are made. An OSError where that fails leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


_OWNER = ".owner"


class OwnedFolder:
    """A fresh folder, removed by `remove` or, if its owner is killed, by the next `sweep`."""

    def __init__(self, parent: Path, prefix: str = "", mode: int = 0o700) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            try:
                self._handle = open_lock_file(self.path / _OWNER)
                lock(self._handle)
            except BaseException:
                shutil.rmtree(self.path, ignore_errors=True)
                raise
            # A sweep that found the file before it was locked has removed the folder: then make another.
            if same_file(self._handle, self.path / _OWNER):
                self.path.chmod(mode)
                return
            os.close(self._handle)

    def remove(self) -> None:
        """Remove it with all it holds; safe to call twice."""
        if self._handle >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._handle)
            self._handle = -1


def sweep(parent: Path, prefix: str = "", unowned_s: float | None = None) -> None:
    """Remove the folders in `parent` whose owners are dead.

    A folder that never had an owner is left alone, unless `unowned_s` is given and it is older than that.
    """
    with suppress(OSError):
        for folder in parent.iterdir():
            if folder.name.startswith(prefix) and not folder.is_symlink() and folder.is_dir():
                with suppress(OSError):  # another user's, held by its owner, or gone meanwhile
                    _remove_unless_owned(folder, unowned_s)


def same_file(handle: int, path: Path) -> bool:
    """Whether a path still leads to the file that was opened."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _remove_unless_owned(folder: Path, unowned_s: float | None) -> None:
    try:
        handle = os.open(folder / _OWNER, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        if unowned_s is not None and folder.stat().st_mtime < time.time() - unowned_s:
            shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        if try_lock(handle):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
