"""The interface of loggers, and the thread in which each of them works.

A logger is a plugin: a file in this folder, or an entry point of the group "warpsmith.loggers". Its library may be slow
or fail: the search goes on, the user reads one sentence, and the logger is off from then on.
"""

from __future__ import annotations

import importlib.util
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from warpsmith.model.errors import ToolMissing
from warpsmith.model.text import one_line
from warpsmith.system.plugins import plugin

PACKAGE = "warpsmith.loggers"
_END_S = 60.0  # for what is still to be sent when the run ends
_LONGEST = 200  # characters of a library's complaint
_ATTEMPTS = 3  # to begin


@dataclass(frozen=True)
class LoggedRun:
    """The facts of a run that a logger gets first."""

    id: str  # the same each time the run is resumed
    name: str
    folder: Path
    parameters: Mapping[str, str | int | float]


@dataclass(frozen=True)
class LoggedTrial:
    """The figures of one trial, and of the run up to it."""

    number: int
    at: float  # seconds since 1970
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class LoggedEnd:
    """How a sitting of the run ended."""

    finished: bool  # False: interrupted or failed
    reason: str
    artifacts: Sequence[Path]  # the best kernel and the report, where they are there


class RunLogger(Protocol):
    """Logs one run. All methods are called in one thread, and may raise anything."""

    def begin(self, run: LoggedRun) -> int | None:
        """Begin, or continue where the run was logged before.

        Returns the last trial that the log has, 0 for none; None where that cannot be known.
        """

    def trial(self, trial: LoggedTrial) -> None:
        """A trial has a verdict, or another one."""

    def end(self, end: LoggedEnd) -> None:
        """The run stops, for now or for good."""


@dataclass(frozen=True)
class LoggerPlugin:
    """A kind of logger."""

    name: str
    module: str  # the library that it needs
    create: Callable[[str], RunLogger]  # gets what follows the colon of "name:where"

    def check(self) -> None:
        """Raise where the library is not installed."""
        if importlib.util.find_spec(self.module) is None:
            raise ToolMissing(
                f"--log {self.name} needs {self.module}; install it with `pip install 'warpsmith[{self.name}]'`."
            )


def chosen_logger(spec: str) -> LoggerPlugin:
    """The plugin that "name" or "name:where" names; raises where it is unknown or not installed."""
    found: LoggerPlugin = plugin(PACKAGE, spec.partition(":")[0])
    found.check()
    return found


class LoggerThread:
    """A logger at work. Nothing of it is raised here: `fault` says what went wrong."""

    def __init__(self, spec: str, run: LoggedRun, earlier: Callable[[], Sequence[LoggedTrial]]) -> None:
        self.fault = ""
        self._spec = spec
        self._run = run
        self._earlier = earlier  # the trials before this sitting
        self._waiting: queue.SimpleQueue[LoggedTrial | LoggedEnd] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"log {spec}", daemon=True)
        self._thread.start()

    def trial(self, trial: LoggedTrial) -> None:
        """Hand over the figures of a trial."""
        self._waiting.put(trial)

    def end(self, end: LoggedEnd) -> None:
        """Hand over the end, and wait a while until everything is logged."""
        self._waiting.put(end)
        self._thread.join(_END_S)
        if self._thread.is_alive():
            self.fault = self.fault or f"--log {self._spec}: it did not take everything within {_END_S:g} s."

    def _begun(self) -> tuple[RunLogger, int | None]:
        """The logger, and the last trial that its log has.

        In Python 3.11, threads that parse source at the same time may raise SystemError (CPython's issue 106905), and
        the imports of these libraries do parse: then once more.
        """
        for left in reversed(range(_ATTEMPTS)):
            try:
                logger = chosen_logger(self._spec).create(self._spec.partition(":")[2])
                return logger, logger.begin(self._run)
            except SystemError:
                if not left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _work(self) -> None:
        try:
            logger, known = self._begun()
            for trial in self._earlier() if known is not None else ():
                if trial.number > (known or 0):
                    logger.trial(trial)
            while True:
                given = self._waiting.get()
                if isinstance(given, LoggedEnd):
                    logger.end(given)
                    return
                logger.trial(given)
        except (Exception, SystemExit) as fault:  # noqa: BLE001  a foreign library: whatever it raises ends its log alone
            said = one_line(str(fault))[:_LONGEST] or type(fault).__name__
            self.fault = f"--log {self._spec} failed and is off for the rest of this run: {said}"
