"""The plan of a bench: complete, checked and stored before anything is spent.

The plan never changes afterwards, so that an interrupted bench continues as planned. Results are not part of it: they
are in the run folders.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.backends.source import backend_named
from warpsmith.experiments.selection import PlannedTask
from warpsmith.methods.check import own_wordings
from warpsmith.model.errors import RunError, UsageError
from warpsmith.model.method import Method
from warpsmith.model.settings import Settings
from warpsmith.proposers.choose import ProposerOptions
from warpsmith.run_log.events import Budget
from warpsmith.search.start import OFFLINE
from warpsmith.system.files import check_below, put_in_place, read_file
from warpsmith.system.locks import lock_folder
from warpsmith.system.signatures import canonical, digest, is_signed, sign

PLAN = "plan.json"
CELLS = "cells"
WINNERS = "winners"
BENCHES = "benches"
"""The folder of benches for which none is given."""
FORMAT = 1
_MOST_CELLS = 100_000


@dataclass(frozen=True)
class CellKey:
    """Identifies a cell: one run of the bench."""

    task: str  # a task's name
    method: str
    proposer: str
    seed: int

    @property
    def folder(self) -> str:
        """The folder of its run, relative to the folder of the bench."""
        return f"{CELLS}/{slug(self.task)}/{slug(self.method)}--{slug(self.proposer)}--{self.seed}"


@dataclass(frozen=True)
class BenchPlan:
    """Tasks, methods and proposers of a bench, and the options of all its runs."""

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
    start: str = ""  # starting kernels: a file, a folder with a file per task, "auto", "plain", or "" for none
    profile: bool = True  # profile kernels that become parents
    tune: bool = True  # tune the best kernel at the end of a run
    verify: bool = True
    compile_baseline: bool = False  # measure best kernels against torch.compile too
    accept_uncalibrated: bool = False  # take tasks whose checks some wrong results pass
    options: ProposerOptions = field(default_factory=ProposerOptions)  # of the proposers
    as_published: str = ""  # the paper whose set-up this is: a value of `as_published.Paper`
    format: int = FORMAT

    @cached_property
    def id(self) -> str:
        """A hash of the plan without its date and version."""
        return digest(_content(self))[:10]

    @property
    def cells(self) -> tuple[CellKey, ...]:
        """All cells, by task, then by repeat, then by method.

        So an interrupted bench can compare what it has finished: no method is a whole repeat ahead.
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


_PLAN = TypeAdapter(BenchPlan)


def cell_folder(root: Path, key: CellKey) -> Path:
    """The folder of a cell's run; a RunError if a link on the way leads out of the bench."""
    folder = root / key.folder
    try:
        check_below(root, folder / PLAN)
    except OSError as refused:
        raise RunError(f"{folder} is not used: {refused.strerror}; put the folder itself there.") from None
    return folder


def slug(text: str) -> str:
    """A folder name for a text: the text itself if possible, else a similar name with a hash."""
    plain = re.sub(r"[^A-Za-z0-9_.@+-]", "_", text)[:60]
    if plain == text and plain.strip("."):
        return plain
    return f"{plain.strip('.') or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def check_plan(plan: BenchPlan) -> BenchPlan:
    """The same plan; a UsageError if it makes no sense."""
    for what, names in (("method", [method.name for method in plan.methods]), ("proposer", list(plan.proposers))):
        if not names:
            raise UsageError(f"a bench needs at least one {what}; name it with --{what}s.")
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise UsageError(f"the {what} {twice[0]!r} is named twice; name each once, and repeat with --repeats.")
    if plan.repeats < 1:
        raise UsageError(f"--repeats {plan.repeats} leaves nothing to do; give 1 or more.")
    if plan.repeats * len(plan.tasks) * len(plan.methods) * len(plan.proposers) > _MOST_CELLS or abs(plan.seed) >> 62:
        raise UsageError(f"a bench has {_MOST_CELLS} cells at most, and a seed below 2^62.")
    return plan


def start_of(plan: BenchPlan, task: str) -> str:
    """The starting kernel of a task: a file, "auto", "plain" or ""; a UsageError if there is no file for the task."""
    if plan.start in ("", *OFFLINE):
        return plan.start
    path = Path(plan.start)
    if path.is_dir():
        suffixes = backend_named(plan.backend).suffixes
        path = next((each for suffix in suffixes if (each := path / f"{task}{suffix}").is_file()), path)
        if path.is_dir():
            wanted = " or ".join(f"{task}{suffix}" for suffix in suffixes)
            raise UsageError(f"--start {path} has no kernel for the task {task}; put {wanted} there.")
    elif len(plan.tasks) > 1:
        raise UsageError(
            f"--start {path} is one kernel for {len(plan.tasks)} tasks; give a folder with one each, auto, or plain."
        )
    return str(path)


def write_plan(plan: BenchPlan, folder: Path) -> None:
    """Write the plan of a bench, signed by this user."""
    try:
        put_in_place(folder / PLAN, _PLAN.dump_json(plan, indent=1) + b"\n", mode=0o644)
        sign(folder, _statement(plan))
    except OSError as refused:
        raise RunError(f"{folder / PLAN} cannot be written ({refused.strerror}); give another --out.") from None


def read_plan(folder: Path) -> BenchPlan:
    """Read the plan of a bench."""
    path = folder / PLAN
    try:
        plan = _PLAN.validate_json(read_file(path))
    except OSError as refused:
        why = f"no {PLAN}" if isinstance(refused, FileNotFoundError) else f"{PLAN}: {refused.strerror}"
        raise RunError(f"{folder} holds no bench ({why}); name the folder that `warpsmith bench` wrote.") from None
    except ValidationError as wrong:
        where = ".".join(str(part) for part in wrong.errors()[0]["loc"]) or "its beginning"
        raise RunError(f"{path} cannot be read as a plan (at {where}); it was changed, or update Warpsmith.") from None
    if plan.format != FORMAT:
        raise RunError(f"{path} is of another release (format {plan.format}, not {FORMAT}); use that release.")
    return check_plan(plan)


def is_own(plan: BenchPlan, folder: Path) -> bool:
    """True if this user planned the bench on this machine."""
    return is_signed(folder, _statement(plan))


def check_harmless(plan: BenchPlan, folder: Path) -> None:
    """Raise a UsageError if a plan of somebody else would run commands, send keys or judge by other rules."""
    known = plan.settings
    settings = replace(Settings(), timing_budget_s=known.timing_budget_s, published_rule=known.published_rule)
    files = any(own_wordings(method) for method in plan.methods) or plan.start not in ("", *OFFLINE)
    if files or set(plan.proposers) - {"template"} or plan.options != ProposerOptions() or plan.settings != settings:
        raise UsageError(
            f"{folder} was not planned by this user on this machine, and its proposers, their options, templates of "
            "prompts, starting kernels and settings are not taken from there: give them again, with "
            f"`warpsmith bench run SUITE ... --out {folder}`."
        )


def _statement(plan: BenchPlan) -> tuple[str, ...]:
    return ("bench", digest(_content(plan)))


def keep_plan(plan: BenchPlan, folder: Path) -> BenchPlan:
    """Store a plan in a folder; returns the stored plan if the folder has the same plan already."""
    if not (folder / PLAN).exists():
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"{folder} holds something that is no bench; give an --out that is empty or not there.")
        write_plan(plan, folder)
        return plan
    there = read_plan(folder)
    if _content(there) == _content(plan):
        try:
            sign(folder, _statement(plan))
        except OSError as refused:
            raise RunError(f"{folder} cannot be written ({refused.strerror}); give another --out.") from None
    else:
        raise UsageError(
            f"{folder} holds another bench, which differs in {', '.join(differences(there, plan))}; go on with it by "
            f"`warpsmith bench resume {folder}`, or give another --out."
        )
    return there


def differences(one: BenchPlan, other: BenchPlan) -> tuple[str, ...]:
    """The names of the fields in which two plans differ."""
    left, right = _content(one), _content(other)
    return tuple(name.replace("_", " ") for name in left if left[name] != right[name])


def _content(plan: BenchPlan) -> dict[str, object]:
    """The fields of a plan in a form that does not change by writing and reading."""
    dumped = _PLAN.dump_python(replace(plan, created="", version=""))
    return {name: canonical(value) for name, value in dumped.items()}


def check_tasks(plan: BenchPlan) -> None:
    """Raise a RunError if a task file has changed: all cells of a bench need the same tasks."""
    for task in plan.tasks:
        path = task.path
        try:
            same = hashlib.sha256(path.read_bytes()).hexdigest()[:16] == task.digest
        except OSError:
            raise RunError(f"{path} of task {task.name!r} is not there any more; put it back to go on.") from None
        if not same:
            raise RunError(f"{path} has changed since the bench began; put it back, or start another bench.")


def default_folder(plan: BenchPlan) -> Path:
    """The folder of a bench for which none is given: the same plan has the same folder, and continues there."""
    return Path(BENCHES) / f"{slug(plan.name)[:40]}-{plan.id}"


@contextmanager
def bench_lock(folder: Path) -> Iterator[None]:
    """Reserve a bench for this process while the block runs."""
    handle = lock_folder(folder)
    try:
        yield
    finally:
        os.close(handle)


def parse_proposers(given: Sequence[str]) -> tuple[str, ...]:
    """Split `template,openai:gpt-5`. A mixture of models (with weights), a command and an agent are one proposer."""
    found: list[str] = []
    for text in given:
        whole = "=" in text or text.startswith(("command:", "agent:"))
        found += [part.strip() for part in ([text] if whole else text.split(",")) if part.strip()]
    return tuple(found)
