"""Selects the tasks of a bench from the words of a command line, without loading the tasks.

A word is a suite (`warpsmith-100`, `kernelbench:PATH/level1`, a folder of task files), tasks of one
(`warpsmith-100/conv2d*`), a name or a pattern of names of the shipped suites (`softmax`, `cumsum*`), or a task file
(`my_op.py`, `my_op.py::name`). `@small` behind any of them takes the small workloads.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import glob
from itertools import count
from pathlib import Path

from warpsmith.model.errors import TaskError, UsageError
from warpsmith.tasks import suites
from warpsmith.tasks.listing import FULL
from warpsmith.tasks.suites import KERNELBENCH, SHIPPED, SuiteTask

_PATTERN = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class PlannedTask:
    """A task as its file declares it, not loaded."""

    name: str  # unique in its bench, usable as a folder name
    title: str  # as on the command line
    spec: str  # a file with the task's name, or the title of a shipped task, so that a plan works on another machine
    family: str
    tags: tuple[str, ...]
    digest: str  # hash of the file when the bench was planned

    @property
    def source(self) -> str:
        """The argument of the task loader on this machine."""
        return suites.resolve_task(self.spec)

    @property
    def path(self) -> Path:
        """The file on this machine."""
        return Path(self.source.partition("::")[0])


@dataclass(frozen=True)
class _Found:
    entry: SuiteTask
    size: str

    @property
    def name(self) -> str:
        return self.entry.name if self.size == FULL else f"{self.entry.name}@{self.size}"

    @property
    def title(self) -> str:
        own = self.entry.title if self.entry.suite else str(self.entry.path)
        return own if self.size == FULL else f"{own}@{self.size}"


def select(words: Sequence[str], *, families: Sequence[str] = (), tags: Sequence[str] = ()) -> tuple[PlannedTask, ...]:
    """The tasks that the words select, each once, in order; of one of the families, with all of the tags."""
    if not words:
        raise UsageError(f"bench needs a suite or tasks; the suites are {', '.join(SHIPPED)}.")
    found: dict[tuple[Path, str, str], _Found] = {}
    for word in words:
        for each in _meant(word):
            found.setdefault((each.entry.path.resolve(), each.entry.name, each.size), each)
    _check_known("family", families, (each.entry.family for each in found.values()))
    _check_known("tag", tags, (tag for each in found.values() for tag in each.entry.tags))
    chosen = [
        each
        for each in found.values()
        if (not families or each.entry.family in families) and set(tags) <= set(each.entry.tags)
    ]
    if not chosen:
        raise UsageError("no task has that family and all of those tags; see `warpsmith suite list`.")
    return _named_apart([_planned(each) for each in chosen])


def _meant(word: str) -> list[_Found]:
    base, at, size = word.rpartition("@")
    spec, size = (base, size) if at and "/" not in size else (word, FULL)
    if spec in SHIPPED or Path(spec).is_dir() or _is_level(spec):
        return [_Found(entry, size) for entry in suites.suite_tasks(spec)]
    if Path(spec.partition("::")[0]).suffix == ".py" and not spec.startswith(f"{KERNELBENCH}:"):
        return [_Found(entry, size) for entry in _of_files(spec)]
    suite, slash, name = spec.rpartition("/")
    if not slash:
        everywhere = [entry for each in SHIPPED for entry in suites.suite_tasks(each)]
        return _matching(everywhere, name, size, f"the suites {', '.join(SHIPPED)}")
    return _matching(list(suites.suite_tasks(suite)), name, size, suite)


def _is_level(spec: str) -> bool:
    return spec.startswith(f"{KERNELBENCH}:") and Path(spec.partition(":")[2]).expanduser().is_dir()


def _matching(entries: Iterable[SuiteTask], pattern: str, size: str, where: str) -> list[_Found]:
    def fits(entry: SuiteTask) -> bool:
        number = entry.name.partition("_")[0] if not entry.native else entry.name
        return pattern == number or fnmatchcase(entry.name, pattern)

    found = [_Found(entry, size) for entry in entries if fits(entry)]
    if not found:
        raise TaskError(f"no task of {where} is called {pattern!r}; `warpsmith suite list` shows the names.")
    return found


def _of_files(spec: str) -> list[SuiteTask]:
    """Tasks of files given by a path or a pattern."""
    text, _, name = spec.partition("::")
    paths = [Path(text)]
    if _PATTERN.search(text):
        paths = [Path(found) for found in sorted(glob(text)) if Path(found).name != "__init__.py"]
    if not paths or not all(path.is_file() for path in paths):
        raise TaskError(f"there is no file {text}; name a task file, a suite, or a task of one.")
    return [entry for path in paths for entry in _of_file(path, name)]


def _of_file(path: Path, name: str) -> list[SuiteTask]:
    declared = [entry for entry in _declared(path) if not name or entry.name == name]
    if name and not declared:
        raise TaskError(f"{path} declares no task {name!r}.")
    unknown = SuiteTask(*("", path.stem, path.resolve(), "", (), (), (), (), (), ""), native=False)
    return declared or [unknown]


def _declared(path: Path) -> list[SuiteTask]:
    try:
        beside = suites.suite_tasks(str(path.parent))
    except TaskError:  # a KernelBench file, or a broken file next to it: loading reports the error
        return []
    own = path.resolve()
    return [replace(entry, suite="", path=own) for entry in beside if entry.path.resolve() == own]


def _planned(found: _Found) -> PlannedTask:
    entry = found.entry
    path, mark, rest = entry.spec(found.size).partition("::")
    try:
        digest = hashlib.sha256(entry.path.read_bytes()).hexdigest()[:16]
    except OSError as refused:
        raise TaskError(f"{entry.path} cannot be read ({refused.strerror}).") from None
    spec = found.title if entry.suite in SHIPPED else f"{Path(path).resolve()}{mark}{rest}"
    return PlannedTask(found.name, found.title, spec, entry.family, entry.tags, digest)


def _named_apart(tasks: Sequence[PlannedTask]) -> tuple[PlannedTask, ...]:
    """Give numbers to tasks of the same name after the first, since results are stored by name."""
    taken = {task.name for task in tasks}
    seen: set[str] = set()
    named = []
    for task in tasks:
        name = task.name
        if name in seen:
            name = next(f"{name}-{number}" for number in count(2) if f"{name}-{number}" not in taken)
        taken.add(name)
        seen.add(task.name)
        named.append(replace(task, name=name))
    return tuple(named)


def _check_known(what: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    there = sorted({word for word in known if word})
    for word in wanted:
        if word not in there:
            raise UsageError(f"no task chosen has the {what} {word!r}; known are {', '.join(there) or 'none'}.")
