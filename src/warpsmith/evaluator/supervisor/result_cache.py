"""Cache of evaluations, by content of task and candidate, device, settings and version of the harness.

A cached evaluation is returned as it was, marked `cached`. Failures of the harness itself are never cached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith._version import __version__
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings
from warpsmith.system.files import put_in_place

_EVALUATION = TypeAdapter(Evaluation)
_SETTINGS = TypeAdapter(Settings)
JUDGE_VERSION = 10  # raise it when a change to the harness makes old evaluations worthless


@dataclass(frozen=True)
class ResultKey:
    """Everything an evaluation depends on."""

    task: str  # digest
    candidate: str  # digest
    compiler: str  # as the backend names it
    device: str  # key
    torch: str  # version
    settings: Settings

    @property
    def name(self) -> str:
        """The file name."""
        parts = (self.task, self.candidate, self.compiler, self.device, self.torch, __version__, str(JUDGE_VERSION))
        text = "\0".join(parts).encode() + _SETTINGS.dump_json(self.settings)
        return hashlib.sha256(text).hexdigest()


class ResultCache:
    """A folder of evaluations; with `cache` None, nothing is stored or found."""

    def __init__(self, cache: Path | None, on_message: Callable[[str], None] = lambda _: None) -> None:
        self._folder = cache / "results" if cache else None
        self._on_message = on_message
        self._writable = True  # until a write fails: the message is given once

    def get(self, key: ResultKey) -> Evaluation | None:
        """A stored evaluation; None if there is none or it cannot be read."""
        if self._folder is None:
            return None
        try:
            found = _EVALUATION.validate_json(self._path(self._folder, key).read_bytes())
        except (OSError, ValidationError):
            return None
        return replace(found, cached=True)

    def put(self, key: ResultKey, evaluation: Evaluation) -> None:
        """Store an evaluation, unless the harness failed. If the folder cannot be written, say so once."""
        if self._folder is None or evaluation.status is Status.NOT_JUDGED:
            return
        try:
            put_in_place(self._path(self._folder, key), _EVALUATION.dump_json(evaluation))
            self._writable = True
        except OSError as fault:
            if self._writable:
                self._on_message(
                    f"evaluations cannot be stored in {self._folder} ({fault.strerror}); "
                    "free some space or set WARPSMITH_CACHE."
                )
            self._writable = False

    @staticmethod
    def _path(folder: Path, key: ResultKey) -> Path:
        return folder / key.name[:2] / f"{key.name}.json"
