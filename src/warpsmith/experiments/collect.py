"""Collects the results of a bench from its folder: the plan, the run logs, and the checks of the best kernels.

Only reads, and only what is there: results can be collected while the bench runs and after any interruption.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from warpsmith.evaluator.judge.timing.statistics import median
from warpsmith.experiments.as_published import differences
from warpsmith.experiments.best_kernels import KernelChecks, checks_folder, read_checks
from warpsmith.experiments.plan import PLAN, BenchPlan, CellKey, cell_folder, read_plan
from warpsmith.experiments.results import (
    RESULTS,
    BenchResults,
    BenchTask,
    Cell,
    CellBest,
    CellStatus,
    CurvePoint,
    MeasuredSpeedup,
    RefusedKernel,
    Versions,
    read_results,
)
from warpsmith.hardware.roofline import permitted
from warpsmith.model.brief import Problem
from warpsmith.model.errors import RunError
from warpsmith.model.evaluation import Environment, Evaluation
from warpsmith.proposers.recorded import is_recording
from warpsmith.run_log.events import RunClosed, StopReason
from warpsmith.run_log.log import LOG_FILE, RunLog
from warpsmith.search.session import Session
from warpsmith.strategies.catalogue import work_families
from warpsmith.system.files import put_in_place, read_file

FAILED = "failed.json"
_REASON_CHARS = 400  # of the reason why one kernel is refused
_BROKEN = (StopReason.PROPOSER_FAILED, StopReason.EVALUATOR_FAILED)  # the search was cut short


@dataclass(frozen=True)
class CellFailure:
    """Why a cell could not be run, as stored."""

    reason: str


@dataclass(frozen=True)
class CollectedCell:
    """A cell with facts of its run that are the same for all cells of the task."""

    cell: Cell
    problem: Problem | None = None
    evaluation: Evaluation | None = None  # of its best kernel


_FAILURE = TypeAdapter(CellFailure)


def collect(folder: Path) -> BenchResults:
    """The current results of a bench."""
    plan = read_plan(folder)
    return assemble(plan, [collect_cell(plan, folder, key) for key in plan.cells])


def results_of(name: str) -> BenchResults:
    """The results that a user names: the folder of a bench, or a file of published results."""
    path = Path(name)
    if path.is_file():
        return read_results(path)
    if not (path / PLAN).exists() and (path / RESULTS).is_file():
        return read_results(path / RESULTS)
    return collect(path)


def write_failure(folder: Path, reason: str) -> None:
    """Store why a cell failed."""
    try:
        put_in_place(folder / FAILED, _FAILURE.dump_json(CellFailure(reason)) + b"\n", mode=0o644)
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); free some space and resume.") from None


# --- one cell ---


def collect_open_cell(plan: BenchPlan, root: Path, key: CellKey, session: Session) -> CollectedCell:
    """One cell, from its run while it is open."""
    return _collected(plan, root, key, session, _failure(cell_folder(root, key)))


def collect_cell(plan: BenchPlan, root: Path, key: CellKey) -> CollectedCell:
    """One cell, from its run's log."""
    failure = why = ""
    try:
        folder = cell_folder(root, key)
        failure = _failure(folder)
        why = failure or "not begun"
        if (folder / LOG_FILE).is_file():
            with Session.read(folder) as session:
                return _collected(plan, root, key, session, failure)
    except RunError as fault:  # killed before its first event, or about to begin
        why = failure or str(fault)
    status = CellStatus.FAILED if failure else CellStatus.UNFINISHED
    return CollectedCell(Cell(key.task, key.method, key.proposer, key.seed, status, why, key.folder))


def is_begun(folder: Path) -> bool:
    """True if there is a run to resume: it was not killed before its first event was stored."""
    if not (folder / LOG_FILE).is_file():
        return False
    with RunLog.open(folder) as log:
        return any(True for _ in log.entries())


def why_damaged(folder: Path) -> str:
    """Why the run of a cell cannot be resumed; "" if it can, or if there is none."""
    if not (folder / LOG_FILE).is_file():
        return ""
    try:
        with Session.read(folder):
            return ""
    except RunError as fault:
        why = str(fault)
    try:
        return why if is_begun(folder) else ""
    except RunError:
        return why


def _collected(plan: BenchPlan, root: Path, key: CellKey, session: Session, failure: str) -> CollectedCell:
    state = session.state
    totals, problem = state.totals, state.setup.problem
    status, reason = (CellStatus.FAILED, failure) if failure else _state(state.closed, key.proposer, totals.trials)
    best, evaluation = _best(plan, root, key, session) if state.best else (None, None)
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
        prompt_tokens=totals.prompt_tokens,
        **_by_published_rule(plan, session),
        epochs=len(state.setup.method.stages),
        usd=None if totals.unpriced else round(totals.cost_usd, 6),
        device_seconds=round(totals.device_seconds, 3),
        wall_seconds=round(totals.seconds, 3),
        curve=tuple(CurvePoint(b.trials, b.score, b.tokens, b.stage + 1) for b in state.best_at),
        device=problem.device,
    )
    return CollectedCell(cell, problem, evaluation)


def _by_published_rule(plan: BenchPlan, session: Session) -> dict[str, Any]:
    """How many proposals the published rule calls valid, and which of them are refused here."""
    if not plan.settings.published_rule:
        return {}
    proposals = [trial.number for trial in session.state.trials.values() if not trial.free]
    judged = {number: each for number in proposals if (each := session.evaluation(number)) is not None}
    accepted = {number: each for number, each in judged.items() if each.published}
    refused = tuple(
        RefusedKernel(number, each.status.value, textwrap.shorten(each.reason, _REASON_CHARS, placeholder="…"))
        for number, each in accepted.items()
        if not each.ok
    )
    counts = Counter(each.status for each in refused)
    return {
        "published_valid": len(accepted),
        "published_only": tuple(sorted(counts.items())),
        "refused": refused,
    }


def _state(closed: RunClosed | None, proposer: str, trials: int) -> tuple[CellStatus, str]:
    if closed is None:
        return CellStatus.UNFINISHED, "broken off"
    why = (closed.detail or closed.reason.words).rstrip(".")
    if closed.reason in (StopReason.INTERRUPTED, StopReason.TOLD):
        return CellStatus.UNFINISHED, why
    if closed.reason in _BROKEN:
        return CellStatus.FAILED, why
    if closed.reason is StopReason.PROPOSER_REFUSED:
        # Templates that have nothing (more) to propose, and a recording at its end, have a result. A model that refuses
        # has no key or no credit, which says nothing about the method.
        ran_out = proposer == "template" or (is_recording(proposer) and trials > 0)
        return (CellStatus.DONE if ran_out else CellStatus.FAILED), why
    return CellStatus.DONE, why


def _best(plan: BenchPlan, root: Path, key: CellKey, session: Session) -> tuple[CellBest | None, Evaluation | None]:
    state = session.state
    trial = state.trials[state.best]
    own = session.evaluation(trial.number)
    checks = read_checks(checks_folder(root, key.task, trial.candidate))
    again = checks.evaluation
    shown = again if again is not None and again.ok and again.speedup() else own
    if shown is None or not shown.ok:  # no valid evaluation
        return None, None
    eager = speedup_of(shown, "eager")
    assert eager is not None, "every evaluation compares with eager"
    verified, why_not = _verified(plan, checks)
    if left_out := next((each.warning for each in (shown, own) if each and each.without), ""):
        verified, why_not = False, left_out
    file = next(iter(sorted(session.folder.glob("best.*"))), None)
    best = CellBest(
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


def _verified(plan: BenchPlan, checks: KernelChecks) -> tuple[bool | None, str]:
    if checks.certificate is not None:
        return checks.certificate.verified, checks.certificate.reason
    again = checks.evaluation
    if again is not None and not again.ok:
        return False, f"measured anew it is not valid: {again.status}: {again.reason}"
    return None, "not verified yet" if plan.verify else "not asked for"


def _over_start(session: Session, best: MeasuredSpeedup) -> MeasuredSpeedup | None:
    """The speedup over the starting kernel, else the first valid kernel, from their speedups over eager."""
    state = session.state
    first = state.starting or min(state.found, default=0)
    if first == state.best:
        return MeasuredSpeedup(1.0, 1.0, 1.0)
    evaluation = session.evaluation(first) if first else None
    start = speedup_of(evaluation, "eager") if evaluation else None
    return best.over(start) if start else None


def speedup_of(evaluation: Evaluation, baseline: str) -> MeasuredSpeedup | None:
    """The speedup over one baseline; None if the baseline was not measured."""
    value, interval = evaluation.speedup(baseline), evaluation.interval(baseline)
    if value is None or interval is None:
        return None
    return MeasuredSpeedup(
        value, min(value, interval.low), max(value, interval.high)
    )  # value and interval are rounded differently


def _failure(folder: Path) -> str:
    try:
        return _FAILURE.validate_json(read_file(folder / FAILED)).reason
    except OSError:
        return ""
    except ValidationError:
        return "it failed, and why cannot be read"


# --- all of them ---


def assemble(plan: BenchPlan, cells: Sequence[CollectedCell]) -> BenchResults:
    """The results of a bench with these cells."""
    known = [each.evaluation for each in cells if each.evaluation is not None]
    devices = dict.fromkeys(each.cell.device for each in cells if each.cell.device)
    return BenchResults(
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
        as_published=plan.as_published,
        differences=differences(plan, tuple(devices)),
    )


def _tasks(plan: BenchPlan, cells: Sequence[CollectedCell]) -> tuple[BenchTask, ...]:
    grouped: dict[str, list[CollectedCell]] = {}
    for each in cells:
        grouped.setdefault(each.cell.task, []).append(each)
    found = []
    for task in plan.tasks:
        own = grouped.get(task.name, [])
        problem = next((each.problem for each in own if each.problem is not None), None)
        bounds = problem.bounds if problem else ()
        figures = problem.figures if problem else None
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
                calibrated=not (problem and problem.uncalibrated),
                product=problem is not None and "matmul" in work_families(problem),
                flops=_mean(bound.flops for bound in bounds) if bounds else None,
                bytes=_mean(bound.bytes for bound in bounds) if bounds else None,
                peak_flops_s=permitted(figures.flops_s, problem.task.precision).flops_s
                if problem and figures
                else None,
                peak_bytes_s=figures.bandwidth_bytes_s if figures else None,
            )
        )
    return tuple(found)


def _baseline_ms(measured: Iterable[Evaluation], name: str) -> float | None:
    """The latency of a baseline: the median over the measurements of all best kernels."""
    times = [
        _mean(b.latency_ms for w in evaluation.workloads for b in w.baselines if b.name == name)
        for evaluation in measured
        if all(any(b.name == name for b in w.baselines) for w in evaluation.workloads)
    ]
    return median(times) if times else None


def _versions(plan: BenchPlan, environments: Sequence[Environment]) -> Versions:
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
