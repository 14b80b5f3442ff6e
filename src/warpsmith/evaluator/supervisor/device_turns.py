"""The turns of one evaluator on a device that other evaluators may use too.

An evaluator that waits for its turn, or has nothing to judge, keeps its buffers on a GPU only while no other evaluator
uses that GPU. Where the memory of the GPU does not suffice now, the evaluator waits, and says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from warpsmith.evaluator.supervisor.device_lock import DeviceLock, DeviceUsers
from warpsmith.model.errors import HarnessFault, TooLittleMemory
from warpsmith.model.numbers import memory_size

_LOOK_S = 0.5  # between two looks for other evaluators and for free memory
_UNKNOWN_S = 5.0  # until the next attempt, where the free memory is not known
_REPEAT_MESSAGE_S = 30.0


class DeviceTurns:
    """Lets an evaluator use its device, one evaluator at a time.

    `release` gives back the device memory that the evaluator does not need while it waits; it is called in a turn, or
    in a thread of this object while there is no turn.
    """

    def __init__(
        self,
        lock: DeviceLock,
        users: DeviceUsers | None,  # None: on a CPU, where buffers stay
        release: Callable[[], None],
        *,
        free_bytes: Callable[[], int | None] = lambda: None,  # of the device; None: not known
        on_wait: Callable[[], None] = lambda: None,
        on_message: Callable[[str], None] = lambda _: None,
        look_s: float = _LOOK_S,
    ) -> None:
        self._lock = lock
        self._users = users
        self._release = release
        self._free_bytes = free_bytes
        self._on_wait = on_wait
        self._on_message = on_message
        self._look_s = look_s
        self._own = threading.RLock()  # held in a turn, and while buffers are released or judges end
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._last_message = -_REPEAT_MESSAGE_S

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Use the device; waits for other evaluators. At the end buffers are released if others use the device."""
        self._enter()
        with self._lock.held(self._on_wait), self._own:
            try:
                yield
            finally:
                if self._users is not None and self._users.others():
                    self._release()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Keep the thread of this object from releasing buffers: for a caller that ends judges outside of a turn."""
        with self._own:
            yield

    def wait_for_memory(self, short: TooLittleMemory) -> None:
        """Wait until the device may have the memory that an attempt lacked; raises HarnessFault after `close`."""
        begun = time.monotonic()
        while True:
            free = self._free_bytes()
            if time.monotonic() - self._last_message >= _REPEAT_MESSAGE_S:
                self._last_message = time.monotonic()
                said = "an unknown amount is" if free is None else f"{memory_size(free)} are"
                self._on_message(
                    f"waiting for device memory: {memory_size(short.needed)} must be free and {said}; the evaluation "
                    "goes on when other programs release theirs."
                )
            if self._closing.wait(self._look_s):
                raise HarnessFault("the evaluator was closed while it waited for device memory.")
            free = self._free_bytes()
            if free is None and time.monotonic() - begun >= _UNKNOWN_S:
                return
            if free is not None and free >= short.needed:
                return

    def close(self) -> None:
        """End the thread and give up the place among the users of the device."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._users is not None:
            self._users.leave()

    def _enter(self) -> None:
        if self._users is None or self._thread is not None:
            return
        self._users.enter()
        self._thread = threading.Thread(target=self._watch, name="device-memory", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        """Release buffers when another evaluator begins to use the device while this one has no turn."""
        assert self._users is not None, "the thread is started on a GPU only"
        while not self._closing.wait(self._look_s):
            if self._users.others() and self._own.acquire(blocking=False):
                try:
                    self._release()
                finally:
                    self._own.release()
