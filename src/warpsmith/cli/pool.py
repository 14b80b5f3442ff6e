"""`warpsmith pool add RUN | list | search TASK | remove KEY`: what earlier runs measured, for later ones.

The pool itself is `strategies.pool`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from warpsmith.backends.source import backend_named
from warpsmith.cli import cards
from warpsmith.cli.checks import find_task
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson
from warpsmith.cli.terminal import print_columns
from warpsmith.hardware.device import Device, select_device, visible_gpus
from warpsmith.model import numbers
from warpsmith.model.brief import Problem
from warpsmith.model.errors import RunError, UsageError
from warpsmith.search import open_run
from warpsmith.search.best_kernel import why_no_best
from warpsmith.search.session import Session
from warpsmith.strategies import pool as stored
from warpsmith.strategies.pool import Improvement, PoolMatch, PoolRecord, PoolSubmission

_WIDTH = 46  # of a strategy in a table


_FIELDS = (
    "key",
    "task",
    "strategy",
    "backend",
    "device",
    "measured",
    "speedup",
    "effect",
    "families",
    "zones",
    "run",
    "date",
)


class PoolAction(StrEnum):
    """What to do with the pool."""

    ADD = "add"
    LIST = "list"
    SEARCH = "search"
    REMOVE = "remove"


def pool(
    action: Annotated[PoolAction, typer.Argument(metavar="ACTION", help="What to do.")],
    target: Annotated[
        str,
        typer.Argument(
            metavar="RUN|TASK|KEY",
            help="The run to add, the task to search for, or what to remove: a key from `list`, or the name of a run.",
        ),
    ] = "",
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda[:n]", help="For which device to search.")] = "auto",
    backend: Annotated[str, typer.Option(metavar="cuda|cpu|triton", help="For which language to search.")] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Records to show at most.")] = 10,
    catalogue: Annotated[
        bool,
        typer.Option(
            "--catalogue", help="List what ships with Warpsmith too: measured records and the entries of the catalogue."
        ),
    ] = False,
    json: AsJson = False,
) -> int:
    """Add a finished run to the pool of kernels and their measured effects; list it, search it, remove from it."""
    if action is PoolAction.LIST:
        return _list(catalogue, json)
    if not target:
        wanted = {PoolAction.ADD: "RUN", PoolAction.SEARCH: "TASK"}.get(action, "KEY")
        raise UsageError(f"pool {action} needs a {wanted}: warpsmith pool {action} {wanted}.")
    if action is PoolAction.ADD:
        return _add(target, json)
    if action is PoolAction.REMOVE:
        return _remove(target, json)
    chosen, language = _device(device, backend)
    return show_matches(_problem(find_task(target), chosen, language), limit, as_json=json)


def _device(device: str, backend: str) -> tuple[Device, str]:
    """Where to look at the task: for GPU kernels, on the CPU where no GPU is visible, since nothing is built or run."""
    if device == "auto" and backend in ("cuda", "triton") and not visible_gpus():
        return select_device("cpu"), backend
    return open_run.choose(device, backend)


def _problem(task: str, device: Device, backend: str) -> Problem:
    """The task as the pool needs it. It is read in this process and nothing is judged, so it may be of any size."""
    from warpsmith.tasks.load import load_task
    from warpsmith.tasks.outline import outline

    program = load_task(task)
    contract = backend_named(backend).contract(program.task)
    return Problem(program.task, contract, backend, device.label, device.kind, device.arch, (), outline(program))


def harvest(session: Session) -> PoolSubmission:
    """Every valid kernel of a run with the better of its parents; the pool keeps the useful ones."""
    state = session.state
    found = []
    for number in state.found:
        trial = state.trials[number]
        if trial.score is None:
            continue
        known = [state.trials[parent] for parent in trial.parents if parent in state.trials]
        scored = [parent for parent in known if parent.score and parent.candidate]
        start = max(scored, key=lambda parent: parent.score or 0.0) if scored else None
        candidate = session.candidate(number)
        found.append(
            Improvement(
                kernel=candidate,
                strategy=trial.strategy or candidate.strategy,
                speedup=trial.score,
                start=session.candidate(start.number) if start else None,
                effect=trial.effect,
                best=number == state.best,
            )
        )
    return PoolSubmission(state.setup.problem, tuple(found), session.folder.name)


def _add(run: str, as_json: bool) -> int:
    with Session.read(open_run.find(run)) as session:
        offered = harvest(session)
        if not offered.improvements:
            if session.state.confirmation.waiting:
                raise RunError(why_no_best(session))
            raise RunError(f"{session.folder} has no valid kernel, so there is nothing to add.")
    added = [PoolMatch(record, 0.0) for record in stored.add_to_pool(offered)]
    if not as_json:
        what = f"{len(added)} new record{'s' * (len(added) != 1)}" if added else "Nothing new"
        slow = all(each.speedup <= 1 for each in offered.improvements)
        why = ": the pool keeps kernels that are faster than PyTorch, and this run has none" if slow else ""
        cards.say(cards.console(), f"{what} from {run} in {stored.pool_path()}{why}.")
    _print(added, scored=False, as_json=as_json)
    return 0


def _remove(name: str, as_json: bool) -> int:
    gone = [PoolMatch(record, 0.0) for record in stored.remove_from_pool(name)]
    if not gone:
        raise UsageError(f"{stored.pool_path()} has no record with the key or run {name!r}; see `warpsmith pool list`.")
    if not as_json:
        cards.say(cards.console(), f"{len(gone)} record{'s' * (len(gone) != 1)} removed from {stored.pool_path()}.")
    _print(gone, scored=False, as_json=as_json)
    return 0


def _list(catalogue: bool, as_json: bool) -> int:
    more = (*stored.shipped_records(), *stored.catalogue_records()) if catalogue else ()
    found = [PoolMatch(record, 0.0) for record in (*stored.pool_records(), *more)]
    if not found and not as_json:
        advice = "add a finished run with `warpsmith pool add RUN`."
        cards.say(cards.console(), f"{stored.pool_path()} is empty; {advice}")
    _print(found, scored=False, as_json=as_json)
    return 0


def show_matches(problem: Problem, limit: int, *, as_json: bool) -> int:
    """Print the records of the pool that fit a problem, the best fit first."""
    found = stored.pool_matches(problem, limit)
    if not found and not as_json:
        cards.say(cards.console(), "Nothing in the pool fits this task and backend.")
    _print(found, scored=True, as_json=as_json)
    shipped = sorted({record.backend for record in stored.shipped_records()})
    if not as_json and problem.backend not in shipped and not any(match.record.measured for match in found):
        others = " or ".join(f"--backend {name}" for name in shipped)
        cards.say(cards.console(), f"No record for {problem.backend} is measured; {others} finds measured ones.")
    return 0


def _print(found: Sequence[PoolMatch], *, scored: bool, as_json: bool) -> None:
    if as_json:
        records = []
        for match in found:
            body = {name: getattr(match.record, name) for name in _FIELDS}
            body["speedup"] = {"eager": match.record.speedup} if match.record.speedup else {}
            records.append({**body, "score": round(match.score, 3) if scored else None})
        print_document({"records": records})
    elif found:
        rows = [({"fit": f"{match.score:.1f}"} if scored else {}) | _row(match.record) for match in found]
        print_columns(cards.console(), rows, optional=("device", "key", "effect", "task"), folding="strategy")


def _row(record: PoolRecord) -> dict[str, str]:
    return {
        "strategy": textwrap.shorten(record.strategy, _WIDTH, placeholder="…"),
        "effect": f"{numbers.ratio(record.effect)}x" if record.effect else "–",
        "speedup": f"{numbers.ratio(record.speedup)}x" if record.speedup else "–",
        "task": record.task or "(catalogue)",
        "device": record.device or (record.backend if not record.measured else "–"),
        "key": record.key if record.measured else "–",
    }
