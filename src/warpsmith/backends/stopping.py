"""Lets whoever ordered builds call them off: a thread that compiles or waits looks here whether it still should.

    with stoppable(stop):
        backend.build(...)  # raises HarnessFault soon after `stop` is set

It ends nothing by itself: what waits must ask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from warpsmith.core.errors import HarnessFault

_STOP: ContextVar[threading.Event | None] = ContextVar("stop", default=None)


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """What this thread builds inside the block ends early once `stop` is set."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


def may_be_stopped() -> bool:
    """Whether this thread's build can be called off at all: then it must not wait in the kernel."""
    return _STOP.get() is not None


def check_stop() -> None:
    """Raise where this thread's build has been called off."""
    stop = _STOP.get()
    if stop is not None and stop.is_set():
        raise HarnessFault("the build was called off: the evaluator was closed.")


def pause(seconds: float) -> None:
    """Sleep, and wake up early when called off."""
    stop = _STOP.get()
    if stop is None:
        time.sleep(seconds)
    else:
        stop.wait(seconds)
    check_stop()
