"""From a bench's folder to its results: a fold over the plan, the run archives, and what is known of the winners.

Reads only, and only what is there: a bench can be folded while it runs, and after any interruption.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.archive.events import Closed
from warpsmith.archive.log import FILE, Archive
from warpsmith.core.errors import RunError
from warpsmith.core.evaluation import Environment, Evaluation
from warpsmith.core.inplace import put_in_place
from warpsmith.core.search import Problem
from warpsmith.evaluate.judging.statistics import median
from warpsmith.run.bench.plan import PLAN, CellKey, Plan, read_plan
from warpsmith.run.bench.results import (
    RESULTS,
    Bench,
    BenchTask,
    Best,
    Cell,
    CellStatus,
    CurvePoint,
    Speedup,
    Versions,
    read_results,
)
from warpsmith.run.bench.winners import Winner, folder_of, read_winner
from warpsmith.run.budgets import REASONS
from warpsmith.run.session import Session

FAILED = "failed.json"
_BROKEN = ("proposer_failed", "evaluator_failed")  # a search that ended so was cut short


@dataclass(frozen=True)
class Failure:
    """Why a cell could not be carried out, as it is kept."""

    reason: str


@dataclass(frozen=True)
class FoldedCell:
    """A cell, and what its run knows of its task and its surroundings."""

    cell: Cell
    problem: Problem | None = None
    evaluation: Evaluation | None = None  # of its winner


_FAILURE = TypeAdapter(Failure)


def fold(folder: Path) -> Bench:
    """The results of a bench, as they are now."""
    plan = read_plan(folder)
    return assemble(plan, [fold_cell(plan, folder, key) for key in plan.cells])


def results_of(name: str) -> Bench:
    """The results that a user names: a bench's folder, folded anew, or results that were published."""
    path = Path(name)
    if path.is_file():
        return read_results(path)
    if not (path / PLAN).exists() and (path / RESULTS).is_file():
        return read_results(path / RESULTS)
    return fold(path)


def write_failure(folder: Path, reason: str) -> None:
    """Keep why a cell failed."""
    try:
        put_in_place(folder / FAILED, _FAILURE.dump_json(Failure(reason)) + b"\n", mode=0o644)
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); free some space and resume.") from None


# --- one cell ---


def fold_cell(plan: Plan, root: Path, key: CellKey) -> FoldedCell:
    """One cell, from its run's log."""
    folder = root / key.folder
    failure = _failure(folder)
    why = failure or "not begun"
    if (folder / FILE).is_file():
        try:
            with Session.peek(folder) as session:
                return _folded(plan, root, key, session, failure)
        except RunError as fault:  # killed in its first moment, or about to begin: the runner knows what to do
            why = failure or str(fault)
    status = CellStatus.FAILED if failure else CellStatus.UNFINISHED
    return FoldedCell(Cell(key.task, key.method, key.proposer, key.seed, status, why, key.folder))


def is_begun(folder: Path) -> bool:
    """Whether there is a run to go on with: not so where it was killed before its first event was kept."""
    if not (folder / FILE).is_file():
        return False
    with Archive.open(folder) as archive:
        return any(True for _ in archive.entries())


def damage(folder: Path) -> str:
    """Why the run of a cell cannot be gone on with as it is kept; "" where it can, or where none was begun."""
    if not (folder / FILE).is_file():
        return ""
    try:
        with Session.peek(folder):
            return ""
    except RunError as fault:
        why = str(fault)
    try:
        return why if is_begun(folder) else ""
    except RunError:
        return why


def _folded(plan: Plan, root: Path, key: CellKey, session: Session, failure: str) -> FoldedCell:
    ledger = session.ledger
    totals, problem = ledger.totals, ledger.begun.problem
    status, reason = (CellStatus.FAILED, failure) if failure else _state(ledger.closed, key.proposer, totals.trials)
    best, evaluation = _best(plan, root, key, session) if ledger.best else (None, None)
    cell = Cell(
        task=key.task,
        method=key.method,
        proposer=key.proposer,
        seed=key.seed,
        status=status,
        reason=reason,
        run=key.folder,
        trials=totals.trials,
        settled=totals.settled,
        valid=totals.valid,
        compiled=totals.compiled,
        best=best,
        tokens=totals.tokens,
        usd=None if totals.unpriced else round(totals.cost_usd, 6),
        device_seconds=round(totals.device_seconds, 3),
        wall_seconds=round(totals.seconds, 3),
        curve=tuple(CurvePoint(trial, score) for trial, score in ledger.best_at),
        device=problem.device,
    )
    return FoldedCell(cell, problem, evaluation)


def _state(closed: Closed | None, proposer: str, trials: int) -> tuple[CellStatus, str]:
    if closed is None:
        return CellStatus.UNFINISHED, "broken off"
    why = (closed.detail or REASONS.get(closed.reason, closed.reason)).rstrip(".")
    if closed.reason in ("interrupted", "told"):
        return CellStatus.UNFINISHED, why
    if closed.reason in _BROKEN:
        return CellStatus.FAILED, why
    if closed.reason == "proposer_refused":
        # The catalogue has nothing more for this task, or has never had: that is its result. A recording is at its
        # end. A model that refuses has no key or no credit, which says nothing about the method.
        ran_out = proposer == "template" or (proposer.startswith("replay:") and trials > 0)
        return (CellStatus.DONE if ran_out else CellStatus.FAILED), why
    return CellStatus.DONE, why


def _best(plan: Plan, root: Path, key: CellKey, session: Session) -> tuple[Best | None, Evaluation | None]:
    ledger = session.ledger
    trial = ledger.trials[ledger.best]
    own = session.evaluation(trial.number)
    winner = read_winner(folder_of(root, key.task, trial.candidate))
    again = winner.evaluation
    shown = again if again is not None and again.ok else own
    if shown is None or not shown.ok:  # measured, and then judged anew by our own fault: the first verdict stands
        return None, None
    eager = speedup_of(shown, "eager")
    assert eager is not None, "every verdict compares with eager"
    verified, why_not = _verified(plan, winner)
    file = next(iter(sorted(session.folder.glob("best.*"))), None)
    best = Best(
        candidate=trial.candidate,
        trial=trial.number,
        file=f"{key.folder}/{file.name}" if file else "",
        strategy=trial.strategy,
        eager=eager,
        compile=speedup_of(shown, "compile"),
        start=_over_start(session, eager),
        latency_ms=_mean(w.latency_ms for w in shown.workloads),
        share_of_floor=_mean(w.share_of_floor for w in shown.workloads),
        remeasured=shown is again,
        verified=verified,
        why_not=why_not,
    )
    return best, shown


def _verified(plan: Plan, winner: Winner) -> tuple[bool | None, str]:
    if winner.certificate is not None:
        return winner.certificate.verified, winner.certificate.reason
    again = winner.evaluation
    if again is not None and not again.ok:
        return False, f"measured anew it is not valid: {again.status}: {again.reason}"
    return None, "not verified yet" if plan.verify else "not asked for"


def _over_start(session: Session, best: Speedup) -> Speedup | None:
    """Over the first valid kernel of the run, both by their speedups over eager."""
    ledger = session.ledger
    first = min(ledger.found, default=0)
    if first == ledger.best:
        return Speedup(1.0, 1.0, 1.0)
    evaluation = session.evaluation(first) if first else None
    start = speedup_of(evaluation, "eager") if evaluation else None
    return best.over(start) if start else None


def speedup_of(evaluation: Evaluation, baseline: str) -> Speedup | None:
    """Over one baseline; None where that was not measured."""
    value, interval = evaluation.speedup(baseline), evaluation.interval(baseline)
    if value is None or interval is None:
        return None
    return Speedup(value, min(value, interval.low), max(value, interval.high))  # they are rounded differently


def _failure(folder: Path) -> str:
    try:
        return _FAILURE.validate_json((folder / FAILED).read_bytes()).reason
    except OSError:
        return ""
    except ValidationError:
        return "it failed, and why cannot be read"


# --- all of them ---


def assemble(plan: Plan, cells: Sequence[FoldedCell]) -> Bench:
    """The bench of these cells."""
    known = [each.evaluation for each in cells if each.evaluation is not None]
    devices = dict.fromkeys(each.cell.device for each in cells if each.cell.device)
    return Bench(
        id=plan.id,
        name=plan.name,
        date=plan.created,
        versions=_versions(plan, [evaluation.environment for evaluation in known]),
        devices=tuple(devices) or (plan.device,),
        backend=plan.backend,
        methods=tuple(method.name for method in plan.methods),
        proposers=plan.proposers,
        tasks=_tasks(plan, cells),
        repeats=plan.repeats,
        seed=plan.seed,
        budget=plan.budget,
        verify=plan.verify,
        cells=tuple(each.cell for each in cells),
    )


def _tasks(plan: Plan, cells: Sequence[FoldedCell]) -> tuple[BenchTask, ...]:
    grouped: dict[str, list[FoldedCell]] = {}
    for each in cells:
        grouped.setdefault(each.cell.task, []).append(each)
    found = []
    for task in plan.tasks:
        own = grouped.get(task.name, [])
        problem = next((each.problem for each in own if each.problem is not None), None)
        bounds = problem.bounds if problem else ()
        measured = [each.evaluation for each in own if each.evaluation is not None]
        found.append(
            BenchTask(
                name=task.name,
                title=task.title,
                family=task.family,
                tags=task.tags,
                precision=problem.task.precision.value if problem else plan.precision,
                zone=problem.zone if problem else "",
                floor_ms=_mean(bound.floor_ms for bound in bounds) if bounds else None,
                eager_ms=_baseline_ms(measured, "eager"),
                compile_ms=_baseline_ms(measured, "compile"),
            )
        )
    return tuple(found)


def _baseline_ms(measured: Iterable[Evaluation], name: str) -> float | None:
    """What a baseline took, in the middle of all winners' measurements."""
    times = [
        _mean(b.latency_ms for w in evaluation.workloads for b in w.baselines if b.name == name)
        for evaluation in measured
        if all(any(b.name == name for b in w.baselines) for w in evaluation.workloads)
    ]
    return median(times) if times else None


def _versions(plan: Plan, environments: Sequence[Environment]) -> Versions:
    def all_of(values: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(value for value in values if value))

    return Versions(
        warpsmith=plan.version,
        torch=all_of(each.torch for each in environments),
        compiler=all_of(each.compiler for each in environments),
        driver=all_of(each.driver for each in environments),
    )


def _mean(values: Iterable[float]) -> float:
    logs = [math.log(max(value, 1e-12)) for value in values]
    return math.exp(sum(logs) / len(logs))
