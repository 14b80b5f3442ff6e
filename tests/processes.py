"""Processes that tests start."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import AnyStr


class KilledProcess(subprocess.Popen[AnyStr]):
    """A process that is killed at the end of its `with`, if it has not ended by then.

    `Popen` waits there: where an assertion fails inside, for as long as the process runs.
    """

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Kill the process, close its pipes and wait for it."""
        self.kill()
        super().__exit__(kind, value, traceback)
