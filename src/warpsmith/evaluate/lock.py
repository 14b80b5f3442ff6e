"""One candidate at a time per device, across processes: an advisory lock that dies with its holder."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class DeviceLock:
    """A lock file per device. The kernel releases it when the holder dies, however it dies."""

    def __init__(self, cache: Path, device_key: str) -> None:
        name = hashlib.sha256(device_key.encode()).hexdigest()[:16]
        self._path = cache / "locks" / f"{name}.lock"

    @contextmanager
    def held(self, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold the device; `on_wait` is called once if somebody else has it."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
