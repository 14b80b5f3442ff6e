"""Verdicts that need not be reached twice: cached by content, device, settings and harness version.

A cached verdict is returned as it was, marked `cached`. What is our own fault is never kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith._version import __version__
from warpsmith.core.config import Settings
from warpsmith.core.errors import HarnessFault
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.inplace import put_in_place

_EVALUATION = TypeAdapter(Evaluation)
_SETTINGS = TypeAdapter(Settings)
_FORMAT = 5  # raise it when a change to the harness makes old verdicts worthless


@dataclass(frozen=True)
class ResultKey:
    """What a verdict depends on."""

    task: str  # digest
    candidate: str  # digest
    compiler: str  # as the backend names it
    device: str  # key
    torch: str  # version
    settings: Settings

    @property
    def name(self) -> str:
        """The file name."""
        parts = (self.task, self.candidate, self.compiler, self.device, self.torch, __version__, str(_FORMAT))
        text = "\0".join(parts).encode() + _SETTINGS.dump_json(self.settings)
        return hashlib.sha256(text).hexdigest()


class ResultCache:
    """A folder of verdicts."""

    def __init__(self, cache: Path) -> None:
        self._folder = cache / "results"

    def get(self, key: ResultKey) -> Evaluation | None:
        """A verdict reached before; None when there is none or it cannot be read."""
        try:
            found = _EVALUATION.validate_json(self._path(key).read_bytes())
        except (OSError, ValidationError):
            return None
        return replace(found, cached=True)

    def put(self, key: ResultKey, evaluation: Evaluation) -> None:
        """Keep a verdict, unless it is our own fault; a HarnessFault where it cannot be kept."""
        if evaluation.status is Status.NOT_JUDGED:
            return
        path = self._path(key)
        try:
            put_in_place(path, _EVALUATION.dump_json(evaluation))
        except OSError as fault:
            raise HarnessFault(
                f"verdicts cannot be kept in {self._folder} ({fault.strerror}); free some space or set WARPSMITH_CACHE."
            ) from None

    def _path(self, key: ResultKey) -> Path:
        return self._folder / key.name[:2] / f"{key.name}.json"


class Verdicts:
    """What is known of a device's candidates; a verdict that was reached is not lost because it cannot be kept."""

    def __init__(self, cache: ResultCache | None, say: Callable[[str], None]) -> None:
        self._cache = cache
        self._say = say
        self._keeps = True  # so far; that it does not is said once

    def get(self, key: ResultKey) -> Evaluation | None:
        """A verdict reached before."""
        return self._cache.get(key) if self._cache else None

    def keep(self, key: ResultKey, evaluation: Evaluation) -> None:
        """Put a verdict away, where that can be done."""
        if self._cache is None:
            return
        try:
            self._cache.put(key, evaluation)
            self._keeps = True
        except HarnessFault as fault:
            if self._keeps:
                self._say(str(fault))
            self._keeps = False
