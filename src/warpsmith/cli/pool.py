"""`warpsmith pool add RUN | list | search TASK`: what earlier runs found out, kept for later ones.

The pool itself is `strategies.pool`; this module takes the harvest of a run and shows records.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from warpsmith.cli import render
from warpsmith.cli.columns import print_columns
from warpsmith.cli.evaluate import check_cache, check_task_file
from warpsmith.core.config import Paths
from warpsmith.core.errors import RunError, UsageError
from warpsmith.core.search import Problem
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.run import opening
from warpsmith.run.best import none_yet
from warpsmith.run.session import Session
from warpsmith.strategies import pool
from warpsmith.strategies.pool import Harvest, Improvement, Match, PoolRecord

ADD, LIST, SEARCH = "add", "list", "search"
_WIDTH = 46  # of a strategy in a table


@dataclass(frozen=True)
class Request:
    """What the command line asked for."""

    action: str  # "add", "list" or "search"
    target: str = ""  # a RUN to add, a TASK to search for
    device: str = "auto"
    backend: str = ""
    limit: int = 10
    catalogue: bool = False  # list the catalogue's own entries too
    as_json: bool = False


@dataclass(frozen=True)
class RecordDocument:
    """A record in JSON, one line each; field names are a promise to programs."""

    key: str
    task: str
    strategy: str
    backend: str
    device: str
    measured: bool
    speedup: float | None
    effect: float | None
    families: tuple[str, ...]
    zones: tuple[str, ...]
    run: str
    date: str
    score: float | None = None  # of a search


def run(request: Request) -> int:
    """Do one of the three, and give the exit status."""
    if request.action in (ADD, SEARCH) and not request.target:
        wanted = "the RUN to learn from" if request.action == ADD else "the TASK to search for"
        raise UsageError(f"pool {request.action} needs {wanted}: warpsmith pool {request.action} {wanted.split()[1]}.")
    if request.action == ADD:
        return _add(request)
    if request.action == LIST:
        return _list(request)
    if request.action == SEARCH:
        return _search(request)
    raise UsageError(f"pool cannot {request.action!r}; use add, list or search.")


def harvest(session: Session) -> Harvest:
    """Every valid kernel of a run with the better of its parents; the pool takes what is worth keeping."""
    ledger = session.ledger
    found = []
    for number in ledger.found:
        trial = ledger.trials[number]
        if trial.score is None:
            continue
        known = [ledger.trials[parent] for parent in trial.parents if parent in ledger.trials]
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
                best=number == ledger.best,
            )
        )
    return Harvest(ledger.begun.problem, tuple(found), session.folder.name)


def _add(request: Request) -> int:
    with Session.peek(opening.find(request.target)) as session:
        offered = harvest(session)
        if not offered.improvements and session.ledger.contenders:
            raise RunError(none_yet(session))
        if not offered.improvements:
            raise RunError(f"{session.folder} has no valid kernel, so that there is nothing to learn from it.")
    added = pool.add(offered)
    if request.as_json:
        _print_json([Match(record, 0.0) for record in added], scored=False)
    else:
        noun = "record" if len(added) == 1 else "records"
        what = f"{len(added)} new {noun}" if added else "Nothing new"
        render.say(render.console(), f"{what} from {request.target} in {pool.pool_path()}.")
        if added:
            _print_table([Match(record, 0.0) for record in added], scored=False)
    return 0


def _list(request: Request) -> int:
    found = [Match(record, 0.0) for record in pool.records(seeds=request.catalogue)]
    if request.as_json:
        _print_json(found, scored=False)
    elif found:
        _print_table(found, scored=False)
    else:
        advice = "add a finished run with `warpsmith pool add RUN`."
        render.say(render.console(), f"{pool.pool_path()} holds nothing yet; {advice}")
    return 0


def _search(request: Request) -> int:
    check_task_file(request.target)
    paths = Paths.from_environment()
    check_cache(paths.cache)
    device, backend = opening.choose(request.device, request.backend)
    with Evaluator(device, paths=paths) as evaluator:
        problem = evaluator.survey(request.target, backend)
    return show_matches(request, problem)


def show_matches(request: Request, problem: Problem) -> int:
    """What the pool has for a problem."""
    found = pool.matches(problem, request.limit)
    if request.as_json:
        _print_json(found, scored=True)
    elif found:
        _print_table(found, scored=True)
    else:
        render.say(render.console(), "Nothing in the pool fits this task and backend.")
    return 0


def _print_json(found: Sequence[Match], *, scored: bool) -> None:
    for match in found:
        sys.stdout.write(json.dumps(asdict(_document(match, scored)), ensure_ascii=False, allow_nan=False) + "\n")


def _document(match: Match, scored: bool) -> RecordDocument:
    record = match.record
    return RecordDocument(
        key=record.key,
        task=record.task,
        strategy=record.strategy,
        backend=record.backend,
        device=record.device,
        measured=record.measured,
        speedup=record.speedup,
        effect=record.effect,
        families=record.families,
        zones=record.zones,
        run=record.run,
        date=record.date,
        score=round(match.score, 3) if scored else None,
    )


def _print_table(found: Sequence[Match], *, scored: bool) -> None:
    rows = [({"fit": f"{match.score:.1f}"} if scored else {}) | _row(match.record) for match in found]
    print_columns(render.console(), rows, going=("device", "effect", "task"), folding="strategy")


def _row(record: PoolRecord) -> dict[str, str]:
    return {
        "strategy": textwrap.shorten(record.strategy, _WIDTH, placeholder="…"),
        "effect": f"{render.ratio(record.effect)}x" if record.effect else "–",
        "speedup": f"{render.ratio(record.speedup)}x" if record.speedup else "–",
        "task": record.task or "(catalogue)",
        "device": _where(record),
    }


def _where(record: PoolRecord) -> str:
    return record.device or (record.backend if not record.measured else "–")
