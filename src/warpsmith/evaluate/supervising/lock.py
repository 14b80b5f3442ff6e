"""One candidate at a time per device, across processes: an advisory lock that dies with its holder.

A GPU is one machine-wide thing, whoever uses it and wherever each keeps a cache: its lock lies where all users of
the machine find it. Evaluations on the CPU take turns where they share a cache; two that were given different
cores on purpose can be given different caches.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warpsmith.backends.stopping import may_be_stopped, pause
from warpsmith.core.errors import HarnessFault

_LOOK_S = 0.02
_FOR_EVERYBODY = (Path("/dev/shm"), Path("/tmp"))
_SAY_AGAIN_S = 30.0


class DeviceLock:
    """A lock file per device. The kernel releases it when the holder dies, however it dies."""

    def __init__(self, folder: Path, device_key: str) -> None:
        name = hashlib.sha256(device_key.encode()).hexdigest()[:16]
        self._path = folder / f"warpsmith-{name}.lock"
        self._ours = False  # held through this object, by another thread perhaps
        self._told = -math.inf

    @contextmanager
    def held(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the device. `on_wait` is called if somebody else has it: not for threads that share this object, and
        not again for a while, since two evaluations that take turns wait for every candidate."""
        handle = self._open()
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not self._ours and time.monotonic() - self._told > _SAY_AGAIN_S:
                    self._told = time.monotonic()
                    on_wait()
                _wait_for(handle)
            self._ours = True
            try:
                yield
            finally:
                self._ours = False
        finally:
            os.close(handle)

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            except PermissionError:  # made by another user: reading it is enough to lock it
                return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            with suppress(PermissionError):
                os.fchmod(handle, 0o644)  # whatever our umask is
            return handle
        except OSError as fault:
            raise HarnessFault(
                f"the lock {self._path} cannot be opened ({fault.strerror}); free some space or unlock its folder."
            ) from None


def _wait_for(handle: int) -> None:
    """In line with the others; a thread whose work can be called off asks again and again instead."""
    if not may_be_stopped():
        fcntl.flock(handle, fcntl.LOCK_EX)
        return
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pause(_LOOK_S)


def lock_folder(kind: str, cache: Path) -> Path:
    """Where the locks of a kind of device lie."""
    shared = [folder for folder in _FOR_EVERYBODY if folder.is_dir()] if kind == "cuda" else []
    return next(iter(shared), cache / "locks")
