"""File locks between processes and threads (flock). The kernel releases a lock when its holder dies.

Locks are asked for through files opened for writing, which works on network file systems too.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from warpsmith.model.errors import RunError
from warpsmith.system.processes import may_be_stopped, pause

_POLL_S = 0.02
_TRIES = 5  # to lock a folder


def open_lock_file(path: Path, mode: int = 0o600) -> int:
    """Open the file of a lock, which is created if needed; not inherited by programs started later."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file; False if somebody else holds the lock. Closing the file releases the lock.

    Any number of processes can hold a shared lock, while nobody holds an exclusive one.
    """
    try:
        fcntl.flock(handle, _kind(shared) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock(handle: int, *, shared: bool = False) -> None:
    """Lock an open file, waiting for other holders; raises HarnessFault if this thread's work is cancelled."""
    if not may_be_stopped():
        fcntl.flock(handle, _kind(shared))
        return
    while not try_lock(handle, shared=shared):
        pause(_POLL_S)


def _kind(shared: bool) -> int:
    return fcntl.LOCK_SH if shared else fcntl.LOCK_EX


def lock_folder(folder: Path) -> int:
    """Reserve the folder of a run or bench for this process, until the returned descriptor is closed."""
    try:
        handle = open_lock_file(folder / "lock", 0o644)
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); copy it to a folder of yours.") from None
    locked = False
    for _ in range(_TRIES):  # a reader that asks whether the folder is in use holds the lock for a moment
        try:
            locked = try_lock(handle)
        except OSError:
            break
        if locked:
            break
        time.sleep(_POLL_S)
    if not locked:
        os.close(handle)
        raise RunError(f"another process is working on {folder}; wait for it or stop it.")
    return handle


def is_locked(folder: Path) -> bool:
    """True if a process has reserved the folder of a run or bench; only looks, and leaves no file."""
    try:
        handle = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return not try_lock(handle, shared=True)
    except OSError:
        return False
    finally:
        os.close(handle)
