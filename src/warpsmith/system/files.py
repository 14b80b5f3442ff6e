"""Files of strangers, files that are replaced in one step, and folders that outlive their owner.

`read_file` waits for nobody and follows no link: a FIFO, a device or a link in a folder of somebody else is an error.

A reader of a replaced file never sees half of it. The owner of a temporary folder keeps a file in it locked; the system
releases the lock when the owner dies, and the next `sweep` removes the folder. Each folder has one owner.

Candidates write into some of these folders: `remove_tree` and `list_tree` accept any depth, number and mode of entries.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from warpsmith.system.locks import lock, open_lock_file, try_lock

MOST_BYTES = 64 << 20
"""The longest file that `read_file` reads where no other limit is given."""


def read_file(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file; an OSError for a link, a FIFO, a device, and for more than `most` bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return content


def check_below(folder: Path, path: Path) -> None:
    """Raise an OSError if a folder between `folder` and `path` is a link, which would lead out of `folder`."""
    for above in path.relative_to(folder).parents:
        if above != Path() and (folder / above).is_symlink():
            raise OSError(errno.ELOOP, f"{above} in it is a link", str(path))


def put_in_place(path: Path, content: bytes, mode: int = 0o600, *, below: Path | None = None) -> None:
    """Write beside the file, then replace it; folders are made. An OSError where that fails leaves nothing behind.

    A link in the place of the file is replaced, not followed. `below` names a folder that is not left by a link either.
    """
    if below is not None:
        check_below(below, path)
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


# --- folders that a stranger filled ---------------------------------------------------------------------

_OWNER = ".owner"
_REMOVE_S = 5.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderTooLarge(Exception):
    """A folder holds more entries, or deeper ones, than were expected of it."""


def remove_tree(folder: Path, limit_s: float = _REMOVE_S) -> bool:
    """Remove a folder with everything in it; True if nothing is left. Raises no OSError and follows no link.

    Subfolders are moved to the top before they are emptied: any depth needs two descriptors and no recursion. What is
    left after the time limit can be removed by another call; the file of an owner goes last, so that `sweep` finds it.
    """
    deadline = time.monotonic() + limit_s
    try:
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return True
    except PermissionError:
        top = _open_locked(folder)
    except OSError:
        return False
    try:
        if top < 0:
            return False
        with suppress(OSError):
            os.fchmod(top, stat.S_IRWXU)
        while not _is_empty_but_owner(top):
            if not _empty_once(top, deadline):
                return False
        with suppress(FileNotFoundError):
            os.unlink(_OWNER, dir_fd=top)
        os.rmdir(folder)
        return True
    except OSError:
        return False
    finally:
        if top >= 0:
            os.close(top)


def list_tree(folder: Path, most_entries: int, most_depth: int) -> list[Path]:
    """All entries beneath a folder, sorted; links are listed and not followed. Raises FolderTooLarge."""
    found: list[Path] = []
    level = [folder] if folder.is_dir() and not folder.is_symlink() else []
    for _ in range(most_depth):
        below: list[Path] = []
        for place in level:
            with suppress(OSError), os.scandir(place) as entries:  # it may be closed to us, or its path too long
                for entry in entries:
                    found.append(place / entry.name)
                    if len(found) > most_entries:
                        raise FolderTooLarge(f"more than {most_entries} files and folders")
                    if entry.is_dir(follow_symlinks=False):
                        below.append(found[-1])
        if not below:
            return sorted(found)
        level = below
    raise FolderTooLarge(f"folders more than {most_depth} deep")


def _is_empty_but_owner(top: int) -> bool:
    with os.scandir(top) as entries:
        return all(entry.name == _OWNER and not entry.is_dir(follow_symlinks=False) for entry in entries)


def _empty_once(top: int, deadline: float) -> bool:
    """Remove the files of a folder and empty its subfolders by one level; False if the time is up or nothing gave."""
    progress = False
    with os.scandir(top) as entries:
        for entry in entries:
            if time.monotonic() > deadline:
                return False
            if entry.is_dir(follow_symlinks=False):
                progress |= _empty_subfolder(top, entry.name, deadline)
            elif entry.name != _OWNER:
                with suppress(OSError):
                    os.unlink(entry.name, dir_fd=top)
                    progress = True
    return progress


def _empty_subfolder(top: int, name: str, deadline: float) -> bool:
    """Move the folders in a subfolder to the top, remove its files and itself; False if nothing could be changed."""
    try:
        inner = os.open(name, _FOLDER, dir_fd=top)
    except PermissionError:
        inner = _open_locked(Path(name), top)
    except OSError:
        return False
    if inner < 0:
        return False
    progress = False
    try:
        with suppress(OSError):
            os.fchmod(inner, stat.S_IRWXU)
        with os.scandir(inner) as entries:
            for entry in entries:
                if time.monotonic() > deadline:
                    return progress
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        _move_up(entry.name, inner, top)
                    else:
                        os.unlink(entry.name, dir_fd=inner)
                    progress = True
    finally:
        os.close(inner)
    with suppress(OSError):
        os.rmdir(name, dir_fd=top)
        progress = True
    return progress


def _move_up(name: str, inner: int, top: int) -> None:
    target = secrets.token_hex(8)
    try:
        os.rename(name, target, src_dir_fd=inner, dst_dir_fd=top)
    except PermissionError:  # a folder that moves must be writable: its ".." changes
        handle = _open_locked(Path(name), inner)
        if handle < 0:
            raise
        os.close(handle)
        os.rename(name, target, src_dir_fd=inner, dst_dir_fd=top)


def _open_locked(name: Path, parent: int | None = None) -> int:
    """Open a folder of ours that does not let us in, after giving ourselves all rights; -1 if that fails."""
    try:
        path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError:
        return -1
    try:
        os.chmod(f"/proc/self/fd/{path}", stat.S_IRWXU)
        return os.open(name, _FOLDER, dir_fd=parent)
    except OSError:
        return -1
    finally:
        os.close(path)


# --- folders that outlive their owner -------------------------------------------------------------------


class OwnedFolder:
    """A fresh folder, removed by `remove` or, if its owner is killed, by the next `sweep`."""

    def __init__(self, parent: Path, prefix: str = "", mode: int = 0o700) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            try:
                self._handle = open_lock_file(self.path / _OWNER)
                lock(self._handle)
            except BaseException:
                remove_tree(self.path)
                raise
            # A sweep that found the file before it was locked has removed the folder: then make another.
            if same_file(self._handle, self.path / _OWNER):
                self.path.chmod(mode)
                return
            os.close(self._handle)

    def remove(self) -> None:
        """Remove it with all it holds; safe to call twice."""
        if self._handle >= 0:
            remove_tree(self.path)
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
            remove_tree(folder)
        return
    try:
        if try_lock(handle):
            remove_tree(folder)
    finally:
        os.close(handle)
