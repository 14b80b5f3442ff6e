"""One candidate at a time per device, across processes.

All users of a machine share its GPUs, so the lock of a GPU lies in a folder that all users can reach. Evaluations on
the CPU exclude each other only if they share a cache folder: evaluations on different cores can use different caches.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warpsmith.model.errors import HarnessFault
from warpsmith.system.locks import lock, open_lock_file, try_lock

_SHARED_FOLDERS = (Path("/dev/shm"), Path("/tmp"))
_REPEAT_MESSAGE_S = 30.0


class DeviceLock:
    """A lock file per device. The kernel releases the lock when its holder dies.

    Holders with `shared` exclude only those without: for work that is not timed.
    """

    def __init__(self, folder: Path, device_key: str, *, shared: bool = False) -> None:
        name = hashlib.sha256(device_key.encode()).hexdigest()[:16]
        self._path = folder / f"warpsmith-{name}.lock"
        self._shared = shared
        self._held = False  # through this object, perhaps by another thread
        self._last_message = -math.inf

    @contextmanager
    def held(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the device. `on_wait` is called if another process holds it, at most twice a minute: two evaluations
        that alternate wait for every candidate. Threads that share this object wait without a call."""
        handle = self._open()
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

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                handle = open_lock_file(self._path, 0o644)
            except PermissionError:  # created by another user: read access is enough to lock the file
                return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            with suppress(PermissionError):
                os.fchmod(handle, 0o644)  # independent of our umask
            return handle
        except OSError as fault:
            raise HarnessFault(
                f"the lock {self._path} cannot be opened ({fault.strerror}); free some space or unlock its folder."
            ) from None


def lock_folder(kind: str, cache: Path) -> Path:
    """The folder of the locks of all devices of a kind ("cpu" or "cuda")."""
    shared = [folder for folder in _SHARED_FOLDERS if folder.is_dir()] if kind == "cuda" else []
    return next(iter(shared), cache / "locks")
