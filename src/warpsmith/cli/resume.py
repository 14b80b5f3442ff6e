"""Taking up a run again: permission to execute its task, and what `optimize --resume` cannot change.

How a run searches and measures cannot change; limits, and who proposes, can.

An option that says what the run was begun with anyway does no harm. One that says otherwise is refused, since verdicts
and kernels from before and after could not be compared, or the log would not fold to what it was.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from warpsmith.cli import cards
from warpsmith.experiments.plan import BenchPlan, check_harmless, is_own
from warpsmith.methods.load import HIDDEN, load
from warpsmith.model.errors import UsageError
from warpsmith.model.text import printable
from warpsmith.run_log.events import RunCreated
from warpsmith.search.options import RunOptions, precision_of
from warpsmith.search.trust import allow_task, may_execute, task_to_execute

_NAMED = 3  # task files named in a question
_Value = str | int | float | bool


def confirm_task(folder: Path, setup: RunCreated, *, trust: bool = False) -> None:
    """Say that the task file of a run is executed; ask first where this user did not create the run here.

    Without a terminal the question is an error that names --trust.
    """
    if not may_execute(folder, setup) and (trust or _agreed(folder, "its task.py")):
        allow_task(folder, setup)
    task = task_to_execute(folder, setup)
    cards.say(cards.console(stderr=True), f"Judging executes {task}.", "dim")


def confirm_bench(folder: Path, plan: BenchPlan, *, trust: bool = False) -> None:
    """The same for the task files of a bench. Proposers and settings of somebody else's plan are refused."""
    files = sorted({str(task.path) for task in plan.tasks})
    named = ", ".join(files[:_NAMED]) + (f" and {len(files) - _NAMED} more" if len(files) > _NAMED else "")
    if not is_own(plan, folder):
        check_harmless(plan, folder)
        if not (trust or _agreed(folder, f"its task files {named}")):
            raise UsageError(
                f"{folder} was not planned by this user on this machine, and going on executes the task files {named} "
                "with all your rights: read them, then allow it with --trust."
            )
    cards.say(cards.console(stderr=True), f"Judging executes {named}.", "dim")


def _agreed(folder: Path, files: str) -> bool:
    """The user's answer; False where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"{folder} was not created by this user on this machine. Going on executes {files} with all your rights."
    return typer.confirm(printable(f"{question} Execute?"), err=True)


def check_unchanged(options: RunOptions, folder: Path, begun: RunCreated) -> None:
    """Raise where an option differs from what the run was begun with, and a run cannot change that."""
    for option, given, own in _told(options, begun):
        if given is not None and given != own:
            raise UsageError(
                f"{_shown(option, given)} does not go with --resume: {folder} was begun with {_shown(option, own)}; "
                "leave it out, or start a new run."
            )


def _told(options: RunOptions, begun: RunCreated) -> Iterator[tuple[str, _Value | None, _Value]]:
    """What cannot change: the option, what it was given (None for nothing), and what it is in the run."""
    config, method = begun.config, begun.method
    parts = {part: getattr(options, part) for part in HIDDEN if part not in ("repairs", "profile")}
    missing = [part for part in parts if f"-no-{part}" in method.name]
    if options.method is not None:
        same = "-no-".join([load(options.method).name, *missing]) == method.name
        yield "--method", options.method, options.method if same else method.name
    for part, wanted in parts.items():
        yield f"--{part}", wanted, part not in missing
    yield "--backend", options.backend, config.backend
    yield "--precision", options.precision, precision_of(config) or begun.problem.task.precision
    if options.baselines is not None:
        yield "--baseline", ",".join(options.baselines), ",".join(config.settings.baselines)
    yield "--time-budget", options.timing_budget_s, config.settings.timing_budget_s
    yield "--seed", options.seed, config.seed
    yield "--start", None if options.start is None else str(options.start), config.start or "none"
    yield "--population", options.population, round(dict(method.population.options).get("size", 0.0))
    yield "--epoch-size", options.epoch_size, config.budget.trials // len(method.stages)
    yield "--repairs", options.repairs, method.repairs if config.repairs is None else config.repairs


def _shown(option: str, value: _Value) -> str:
    """As it is written on the command line."""
    if isinstance(value, bool):
        return option if value else option.replace("--", "--no-", 1)
    return f"{option} {value:g}" if isinstance(value, float) else f"{option} {value}"
