"""One candidate at a time per device, across processes.

All users of a machine share its GPUs, so the lock of a GPU lies in a folder that all users can reach. Evaluations on
the CPU exclude each other only if they share a cache folder: evaluations on different cores can use different caches.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warpsmith.model.errors import HarnessFault
from warpsmith.system.locks import lock, open_lock_file, try_lock

_SHARED_FOLDERS = (Path("/dev/shm"), Path("/tmp"))
_REPEAT_MESSAGE_S = 30.0


class DeviceUsers:
    """Who uses a device: every evaluator of a GPU holds a read lock on one file from its first turn to its end.

    The locks belong to the open file (F_OFD_SETLK), so evaluators of one process see each other, too.
    """

    def __init__(self, folder: Path, device_key: str) -> None:
        self._path = folder / f"warpsmith-{_name(device_key)}.users"
        self._handle: int | None = None

    def enter(self) -> None:
        """Become a user of the device."""
        if self._handle is None:
            self._handle = _open_shared(self._path)
            fcntl.fcntl(self._handle, fcntl.F_OFD_SETLKW, _first_byte(fcntl.F_RDLCK))

    def others(self) -> bool:
        """True if another evaluator uses the device."""
        if self._handle is None:
            return False
        answer = fcntl.fcntl(self._handle, fcntl.F_OFD_GETLK, _first_byte(fcntl.F_WRLCK))
        kind: int = _FLOCK.unpack(answer)[0]
        return kind != fcntl.F_UNLCK

    def leave(self) -> None:
        """Stop using the device."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


def _first_byte(kind: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0)


class DeviceLock:
    """A lock file per device. The kernel releases the lock when its holder dies.

    Holders with `shared` exclude only those without: for work that is not timed.
    """

    def __init__(self, folder: Path, device_key: str, *, shared: bool = False) -> None:
        self._path = folder / f"warpsmith-{_name(device_key)}.lock"
        self._shared = shared
        self._held = False  # through this object, perhaps by another thread
        self._last_message = -math.inf

    @contextmanager
    def held(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the device. `on_wait` is called if another process holds it, at most twice a minute: two evaluations
        that alternate wait for every candidate. Threads that share this object wait without a call."""
        handle = _open_shared(self._path)
        try:
            if not try_lock(handle, shared=self._shared):
                if not self._held and time.monotonic() - self._last_message > _REPEAT_MESSAGE_S:
                    self._last_message = time.monotonic()
                    on_wait()
                lock(handle, shared=self._shared)
            self._held = True
            try:
                yield
            finally:
                self._held = False
        finally:
            os.close(handle)


def _name(device_key: str) -> str:
    return hashlib.sha256(device_key.encode()).hexdigest()[:16]


def _open_shared(path: Path) -> int:
    """Open a file that all users of the machine lock."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = open_lock_file(path, 0o644)
        except PermissionError:  # created by another user: read access is enough to lock the file
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        with suppress(PermissionError):
            os.fchmod(handle, 0o644)  # independent of our umask
        return handle
    except OSError as fault:
        raise HarnessFault(
            f"the lock {path} cannot be opened ({fault.strerror}); free some space or unlock its folder."
        ) from None


def lock_folder(kind: str, cache: Path) -> Path:
    """The folder of the locks of all devices of a kind ("cpu" or "cuda")."""
    shared = [folder for folder in _SHARED_FOLDERS if folder.is_dir()] if kind == "cuda" else []
    return next(iter(shared), cache / "locks")
