"""Temporary folders that say whether their owner still lives, so that what a killed process left is removed at once.

A folder holds a file that its owner keeps locked; the system lets go of the lock when the owner dies, however it
dies. The lock is asked for through a file opened for writing, which works on network file systems too. Not a
lock between cooperating users of one folder: each folder has one owner.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

_OWNER = ".owner"


class OwnedFolder:
    """A fresh folder, removed by `remove` or, if its owner is killed, by the next `sweep`."""

    def __init__(self, parent: Path, prefix: str = "", mode: int = 0o700) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            try:
                self._handle = os.open(self.path / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._handle, fcntl.LOCK_EX)
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
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
