"""Asks the process that works on a run to stop, from another process: a file in the folder of the run.

`listening` is used by `ActiveRun`: a request acts like one Ctrl-C, and ends with the search that it stopped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from warpsmith.model.errors import RunError

NAME = "stop-requested"
_POLL_S = 0.3


def request_stop(folder: Path) -> None:
    """Ask the process that works on the run in a folder to stop."""
    try:
        os.close(os.open(folder / NAME, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); stop the run with Ctrl-C.") from None


@contextmanager
def listening(folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Call `act` once if somebody asks for a stop while the block runs; an earlier request is void."""
    request, ended = folder / NAME, threading.Event()
    with suppress(OSError):
        request.unlink()

    def look() -> None:
        while not ended.wait(_POLL_S):
            if os.path.lexists(request):
                act()
                return

    thread = threading.Thread(target=look, name="stop-request", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(OSError):
            request.unlink()
