"""What a bench is to do: decided whole, checked, and written down before anything is spent.

The plan never changes afterwards, so that a bench goes on after any interruption exactly as it was meant. Nothing
about what has been done is here: that is in the run folders.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.archive.events import Budget
from warpsmith.core.config import Settings
from warpsmith.core.errors import RunError, UsageError
from warpsmith.core.inplace import put_in_place
from warpsmith.core.method import Method
from warpsmith.propose.making import Options
from warpsmith.run.bench.selection import PlannedTask

PLAN = "plan.json"
CELLS = "cells"
WINNERS = "winners"
BENCHES = "benches"
"""The folder where benches are put that are given none."""
FORMAT = 1


@dataclass(frozen=True)
class CellKey:
    """Which cell of the matrix."""

    task: str  # a task's name
    method: str
    proposer: str
    seed: int

    @property
    def folder(self) -> str:
        """Its run, relative to the bench's folder."""
        return f"{CELLS}/{slug(self.task)}/{slug(self.method)}--{slug(self.proposer)}--{self.seed}"


@dataclass(frozen=True)
class Plan:
    """The matrix, and what is the same for all its cells."""

    name: str
    created: str  # ISO 8601, UTC
    version: str  # of Warpsmith
    tasks: tuple[PlannedTask, ...]
    methods: tuple[Method, ...]
    proposers: tuple[str, ...]
    repeats: int
    seed: int
    budget: Budget
    settings: Settings
    device: str  # kind: "cpu" or "cuda"
    backend: str
    precision: str = ""  # "" for each task's own
    repairs: int | None = None
    enough_share: float | None = 0.95
    parallel: int | None = None
    profile: bool = True  # kernels that become parents
    tune: bool = True  # the best kernel of a run, at its end
    verify: bool = True
    compile_baseline: bool = False  # measure winners against torch.compile too
    options: Options = field(default_factory=Options)  # of the proposers
    format: int = FORMAT

    @property
    def id(self) -> str:
        """The same for the same plan, whenever and by whichever release it was made."""
        return hashlib.sha256(json.dumps(_content(self), sort_keys=True).encode()).hexdigest()[:10]

    @property
    def cells(self) -> tuple[CellKey, ...]:
        """All of them: those of one task follow each other, and in it repeats come before methods.

        So a bench that is broken off has compared what it has done: no method is a whole repeat ahead.
        """
        return tuple(
            CellKey(task.name, method.name, proposer, seed)
            for task in self.tasks
            for seed in range(self.seed, self.seed + self.repeats)
            for method in self.methods
            for proposer in self.proposers
        )

    def task(self, name: str) -> PlannedTask:
        """A task by its name."""
        return next(task for task in self.tasks if task.name == name)

    def method(self, name: str) -> Method:
        """A method by its name."""
        return next(method for method in self.methods if method.name == name)


_PLAN = TypeAdapter(Plan)


def slug(text: str) -> str:
    """A folder's name for a text: the text itself where it will do, else near it and unlike that of others."""
    plain = re.sub(r"[^A-Za-z0-9_.@+-]", "_", text)[:60]
    if plain == text and plain.strip("."):
        return plain
    return f"{plain.strip('.') or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def check(plan: Plan) -> Plan:
    """The plan, if it is one."""
    for what, names in (("method", [method.name for method in plan.methods]), ("proposer", list(plan.proposers))):
        if not names:
            raise UsageError(f"a bench needs at least one {what}; name it with --{what}s.")
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise UsageError(f"the {what} {twice[0]!r} is named twice; name each once, and repeat with --repeats.")
    if plan.repeats < 1:
        raise UsageError(f"--repeats {plan.repeats} leaves nothing to do; give 1 or more.")
    return plan


def write_plan(plan: Plan, folder: Path) -> None:
    """Put it in place, in a folder that holds none."""
    try:
        put_in_place(folder / PLAN, _PLAN.dump_json(plan, indent=1) + b"\n", mode=0o644)
    except OSError as refused:
        raise RunError(f"{folder / PLAN} cannot be written ({refused.strerror}); give another --out.") from None


def read_plan(folder: Path) -> Plan:
    """The plan of a bench."""
    path = folder / PLAN
    try:
        plan = _PLAN.validate_json(path.read_bytes())
    except OSError:
        raise RunError(f"{folder} holds no bench (no {PLAN}); name the folder that `warpsmith bench` wrote.") from None
    except ValidationError as wrong:
        where = ".".join(str(part) for part in wrong.errors()[0]["loc"]) or "its beginning"
        raise RunError(f"{path} cannot be read as a plan (at {where}); it was changed, or update Warpsmith.") from None
    if plan.format != FORMAT:
        raise RunError(f"{path} is of another release (format {plan.format}, not {FORMAT}); use that release.")
    return plan


def settle(plan: Plan, folder: Path) -> Plan:
    """The plan to go by in a folder: the one that lies there, if it is the same; else this one, written down."""
    if not (folder / PLAN).exists():
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} holds something that is no bench; give an --out that is empty or not there.")
        write_plan(plan, folder)
        return plan
    there = read_plan(folder)
    if there.id != plan.id:
        raise UsageError(
            f"{folder} holds another bench, which differs in {', '.join(differences(there, plan))}; go on with it by "
            f"`warpsmith bench resume {folder}`, or give another --out."
        )
    return there


def differences(one: Plan, other: Plan) -> tuple[str, ...]:
    """In which parts two plans differ, by name."""
    left, right = _content(one), _content(other)
    return tuple(name.replace("_", " ") for name in left if left[name] != right[name])


def _content(plan: Plan) -> dict[str, object]:
    """What makes a plan this one, as plain data, the same however often it was written and read: sets have no order,
    and whole numbers may come back as others."""

    def ordered(value: object) -> object:
        if isinstance(value, dict):
            return {key: ordered(each) for key, each in value.items()}
        if isinstance(value, set | frozenset):
            return sorted(str(each) for each in value)
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        return [ordered(each) for each in value] if isinstance(value, list | tuple) else value

    dumped = _PLAN.dump_python(replace(plan, created="", version=""))
    return {name: ordered(value) for name, value in dumped.items()}


def check_tasks(plan: Plan) -> None:
    """Raise where a task's file is not what it was: cells of one bench must be about the same."""
    for task in plan.tasks:
        path = task.path
        try:
            same = hashlib.sha256(path.read_bytes()).hexdigest()[:16] == task.digest
        except OSError:
            raise RunError(f"{path} of task {task.name!r} is not there any more; put it back to go on.") from None
        if not same:
            raise RunError(f"{path} has changed since the bench began; put it back, or start another bench.")


def default_folder(plan: Plan) -> Path:
    """Where a bench is put that is given no folder: the same for the same plan, so that asking again goes on."""
    return Path(BENCHES) / f"{slug(plan.name)[:40]}-{plan.id}"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The right to work on a bench, which ends with the process that has it."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); copy it to a folder of yours.") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another process is working on {folder}; wait for it or stop it.") from None
        yield
    finally:
        os.close(handle)


def parse_proposers(given: Sequence[str]) -> tuple[str, ...]:
    """`template,openai:gpt-5` as two. A mixture of models, which has weights, and a command are taken whole."""
    found: list[str] = []
    for text in given:
        whole = "=" in text or text.startswith("command:")
        found += [part.strip() for part in ([text] if whole else text.split(",")) if part.strip()]
    return tuple(found)
