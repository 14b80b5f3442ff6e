"""What may be taken from the folder of a run: the log and the task file of a stranger are data, until a user says more.

A run that this user created is signed (`system.signatures`). Without that signature its settings and its proposer are
not used, and its task file, which a judge executes with all rights of the user, is not executed before the user allows
it. The signature covers the first event of the log (configuration, method, problem), the task file with the modules
beside it that it imports, and the proposer; it does not cover the trials.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from warpsmith.model.errors import RunError, UsageError
from warpsmith.model.settings import Settings
from warpsmith.run_log.events import RunConfig, RunCreated
from warpsmith.run_log.log import as_data
from warpsmith.search.options import RunOptions
from warpsmith.system.files import read_file
from warpsmith.system.signatures import digest, is_signed, sign
from warpsmith.tasks.local_imports import local_modules

TASK_FILE = "task.py"
_HARMLESS = ("template", "person")  # proposers that start no program and send nothing
_LONGEST_TIMING_S = 3600.0
_MOST_DIGESTS = 128  # a new run is asked about four times


class UntrustedTask(RunError):
    """The task file of a run would be executed, and the user has not allowed that."""


def sign_run(folder: Path, setup: RunCreated) -> None:
    """Sign a run that this user has just created."""
    _sign(folder, ("run", _digest(setup)), _task(folder, setup), _proposer(setup, setup.config.proposer))


def allow_task(folder: Path, setup: RunCreated) -> None:
    """Sign the task file of a run: the user allows to execute it."""
    _sign(folder, _task(folder, setup))


def allow_proposer(folder: Path, setup: RunCreated, proposer: str) -> None:
    """Sign a proposer that the user has named for a run."""
    _sign(folder, _proposer(setup, proposer))


def is_own(folder: Path, setup: RunCreated) -> bool:
    """True if this user created the run."""
    return is_signed(folder, ("run", _digest(setup)))


def may_execute(folder: Path, setup: RunCreated) -> bool:
    """True if the task file is the one that this user wrote there or allowed."""
    return is_signed(folder, _task(folder, setup))


def task_to_execute(folder: Path, setup: RunCreated) -> str:
    """The task of a run, as the loader takes it, for those who execute it; an UntrustedTask without permission."""
    if not may_execute(folder, setup):
        raise UntrustedTask(
            f"{folder} was not created by this user on this machine, and judging its kernels executes its {TASK_FILE} "
            "with all your rights: read that file, then allow it with --trust (in Python: Run.open(..., trust=True))."
        )
    return task_of(folder, setup.config)


def task_of(folder: Path, config: RunConfig) -> str:
    """The task file of a run: where it was, if it still says the same, else the copy kept with the run."""
    path, mark, name = config.task.partition("::")
    try:
        copy = read_file(folder / TASK_FILE)
    except OSError as refused:
        raise RunError(f"{folder / TASK_FILE} cannot be read ({refused.strerror}); put the task file back.") from None
    try:
        same = read_file(Path(path)) == copy and local_modules(Path(path)) == local_modules(folder / TASK_FILE)
    except (OSError, ValueError):
        same = False
    return config.task if same else f"{folder / TASK_FILE}{mark}{name}"


def proposer_of(folder: Path, setup: RunCreated, proposer: str) -> str:
    """The proposer that the log names; a UsageError if this user has not named it and it could execute or send."""
    if proposer in _HARMLESS or is_signed(folder, _proposer(setup, proposer)):
        return proposer
    raise UsageError(
        f"{folder} names the proposer {proposer[:200]!r}, which this user has not given on this machine; "
        "name one with --proposer."
    )


def settings_of(folder: Path, setup: RunCreated) -> Settings:
    """How the kernels of a run are judged. All guards are on, whatever the log says.

    From the log of a stranger come the baselines and the time of a measurement, as `optimize` takes them.
    """
    stored, usual = setup.config.settings, Settings()
    if is_own(folder, setup):
        return replace(stored, without=usual.without)
    if not 0 <= stored.timing_budget_s <= _LONGEST_TIMING_S:
        raise RunError(f"{folder} asks for measurements of {stored.timing_budget_s:g} s; start a new run.")
    baselines = RunOptions(baselines=stored.baselines).checked_baselines()
    return replace(usual, baselines=baselines, timing_budget_s=stored.timing_budget_s)


def _sign(folder: Path, *statements: tuple[str, ...]) -> None:
    try:
        sign(folder, *statements)
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); copy it to a folder of yours.") from None


_digests: dict[int, tuple[RunCreated, str]] = {}
"""Digests by the id of the record, which an entry keeps alive. Equal records may have different digests."""


def _digest(setup: RunCreated) -> str:
    kept = _digests.get(id(setup))
    if kept is None:
        if len(_digests) >= _MOST_DIGESTS:
            _digests.clear()
        kept = _digests[id(setup)] = (setup, digest(as_data(setup)))
    return kept[1]


def _task(folder: Path, setup: RunCreated) -> tuple[str, ...]:
    content = hashlib.sha256()
    try:
        content.update(read_file(folder / TASK_FILE))
        for name, text in sorted(local_modules(folder / TASK_FILE).items()):
            content.update(f"\0{name}\0{text}".encode())
    except OSError:
        content = hashlib.sha256()  # no task file: `task_of` reports it
    return ("task", _digest(setup), content.hexdigest())


def _proposer(setup: RunCreated, proposer: str) -> tuple[str, ...]:
    return ("proposer", _digest(setup), proposer)
