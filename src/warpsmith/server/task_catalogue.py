"""The tasks that clients of a server may name, and the task files that they upload.

A name is looked up in a table that is made when the server starts; no part of a name is used as a path. An uploaded
file is code: it is accepted only where the owner of the server allows that, and kept in a folder of its own.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.model.errors import TaskError, UsageError
from warpsmith.server.messages import TaskEntry, TaskReference
from warpsmith.system.files import put_in_place, remove_tree
from warpsmith.tasks.listing import FULL, SMALL
from warpsmith.tasks.suites import SHIPPED, SuiteTask, check_syntax, suite_tasks

TASK_FILE = "task.py"
_YOUNG_S = 3600.0  # an upload of this age may belong to a submission that is being accepted


@dataclass(frozen=True)
class ServedTask:
    """A task that can be judged."""

    name: str  # for people
    spec: str  # as the loader takes it
    digest: str  # of everything that the task file says


class UploadRefused(TaskError):
    """The owner of the server does not accept task files."""


class TaskCatalogue:
    """The tasks of a server."""

    def __init__(self, folders: Sequence[str], uploads: Path, *, allow_uploads: bool) -> None:
        self.allow_uploads = allow_uploads
        self._uploads = uploads
        self._tasks: dict[str, SuiteTask] = {}
        for suite in (*SHIPPED, *folders):
            first = suite if suite in SHIPPED else Path(suite.rpartition(":")[2]).resolve().name
            for task in suite_tasks(suite):
                if self._tasks.setdefault(f"{first}/{task.name}", task) is not task:
                    raise UsageError(f"two folders of tasks offer {first}/{task.name}; rename one of them.")

    def entries(self) -> list[TaskEntry]:
        """What clients may name."""
        return [
            TaskEntry(
                name=name,
                sha256=hashlib.sha256(_content(task.path)).hexdigest(),
                sizes=[FULL, SMALL] if task.small else [FULL],
                precisions=[each.value for each in task.precisions],
                description=task.description,
            )
            for name, task in self._tasks.items()
        ]

    def find(self, reference: TaskReference, client: str) -> ServedTask:
        """The task that a client names or uploads; raises a TaskError for an unknown one."""
        return self._named(reference.name) if reference.name else self._uploaded(reference, client)

    def prune(self, used: Collection[str]) -> None:
        """Remove the uploaded files of tasks that no submission uses."""
        kept = {Path(spec.partition("::")[0]).parent for spec in used}
        for folder in self._uploads.glob("*"):
            if folder not in kept and folder.stat().st_mtime < time.time() - _YOUNG_S:
                remove_tree(folder)

    def _named(self, text: str) -> ServedTask:
        name, at, size = text.partition("@")
        task = self._tasks.get(name)
        if task is None:
            raise TaskError("the server has no task of this name; GET /v1/tasks lists the names.")
        spec = task.spec(size if at else FULL)
        return ServedTask(text, spec, _digest(_content(task.path).hex(), spec.partition("::")[2]))

    def _uploaded(self, reference: TaskReference, client: str) -> ServedTask:
        if not self.allow_uploads:
            raise UploadRefused("this server accepts no task files; name one of its tasks, or ask its owner.")
        digest = _digest(client, reference.text, json.dumps(reference.modules, sort_keys=True))
        folder = self._uploads / digest[:40]
        try:
            for name, text in {TASK_FILE: reference.text, **reference.modules}.items():
                if not (folder / name).is_file():
                    put_in_place(folder / name, text.encode(), mode=0o644)
        except OSError as refused:
            raise TaskError(f"the task file cannot be kept ({refused.strerror}); try again later.") from None
        spec = f"{folder / TASK_FILE}" + (f"::{reference.entry}" if reference.entry else "")
        try:
            check_syntax(spec)
        except TaskError as wrong:
            remove_tree(folder)
            raise TaskError(str(wrong).replace(f"{folder}/", "")) from None
        return ServedTask(reference.entry or "uploaded", spec, _digest(digest, reference.entry))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as refused:
        raise TaskError(f"the server cannot read a task file ({refused.strerror}); tell its owner.") from None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
