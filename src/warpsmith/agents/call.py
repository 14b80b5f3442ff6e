"""One call of a tool: long work runs as a `warpsmith` command in a process of its own, which can be watched and ended.

The command's process imports torch where it must and holds the evaluator; the server stays small, and a call that is
cancelled takes everything with it that it started.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from warpsmith.model.errors import HarnessFault, UsageError
from warpsmith.model.text import one_line
from warpsmith.system.processes import run_watched, stoppable

_LONGEST_S = 6 * 3600.0
_MOST_BYTES = 32 << 20
_TAIL_BYTES = 4096
_ERROR = ("error: ", "internal error: ")


class ToolCall:
    """The state of one call. `cancel` and `progress` may be called from other threads."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._stop = threading.Event()
        self._errors: Path | None = None
        self._output: Path | None = None
        self._expected = 1

    def cancel(self) -> None:
        """End the command that is running, if there is one, and start none afterwards."""
        self._stop.set()

    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""
        return self._stop.is_set()

    def progress(self) -> tuple[float, str]:
        """The seconds since the call began, and what is happening."""
        said = ""
        if self._errors is not None:
            said = one_line(_last_line(self._errors))
        if self._output is not None and self._expected > 1:
            done = _lines(self._output)
            said = f"{done} of {self._expected} done" + (f"; {said}" if said else "")
        return time.monotonic() - self._begun, said[:300] or "working"

    def command(self, *words: str, expected: int = 1, module: str = "warpsmith") -> list[dict[str, Any]]:
        """Run a command with `--json` and return what it prints; `expected` is the number of objects."""
        with _scratch() as folder:
            self._output, self._errors, self._expected = folder / "out", folder / "err", expected
            try:
                with stoppable(self._stop):
                    done = run_watched(
                        [sys.executable, "-P", "-m", module, *words],
                        environ=os.environ,
                        limit_s=_LONGEST_S,
                        log=self._output,
                        errors=self._errors,
                        folder=folder,
                    )
                if done.timed_out:
                    raise HarnessFault(f"the call took more than {_LONGEST_S:.0f} s; ask for less work at once.")
                found = _documents(self._output)
                if not found:
                    raise UsageError(_error(self._errors, done.status))
                return found
            finally:
                self._output = self._errors = None


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="warpsmith-agent-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _documents(output: Path) -> list[dict[str, Any]]:
    found = []
    with output.open("rb") as file:
        for line in file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines():
            with suppress(ValueError, RecursionError):
                document = json.loads(line)
                if isinstance(document, dict):
                    found.append(document)
    return found


def _error(errors: Path, status: int) -> str:
    """The sentence that a command ended with."""
    lines = [line for line in _tail(errors).splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith(_ERROR)), lines[-1] if lines else "")
    return said.removeprefix("error: ") or f"the command ended with status {status} and said nothing; try again."


def _last_line(path: Path) -> str:
    return next((line for line in reversed(_tail(path).splitlines()) if line.strip()), "")


def _tail(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:  # gone: the command has ended
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
    return ""


def _lines(path: Path) -> int:
    with suppress(OSError):
        return path.read_bytes().count(b"\n")
    return 0
