"""From what was measured to a roofline picture: one candidate, or all valid ones of a run with their descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.core.evaluation import Evaluation, WorkloadResult
from warpsmith.core.search import Problem
from warpsmith.hardware.analysis import Ceilings, ceilings
from warpsmith.hardware.roofline import Peaks
from warpsmith.report.roofline import Point, Roof, RooflinePicture
from warpsmith.run.session import Session

_EAGER = "eager"


@dataclass(frozen=True)
class Shown:
    """A valid candidate to be drawn."""

    id: str
    label: str
    evaluation: Evaluation
    parents: tuple[str, ...] = ()
    order: int = 0
    best: bool = False


def picture_of(problem: Problem, roof: Ceilings, shown: Sequence[Shown]) -> RooflinePicture | None:
    """Candidates in the problem's largest workload; None where the device's bandwidth is not known."""
    if not roof.bandwidth_bytes_s or not problem.bounds:
        return None
    workload = max(problem.bounds, key=lambda bound: bound.floor_ms).workload
    points: list[Point] = []
    for each in sorted(shown, key=lambda one: one.best):
        result = _result(each.evaluation, workload)
        if result is None or result.latency_ms <= 0 or result.bytes <= 0:
            continue
        rate = 1e3 * result.bytes / result.latency_ms
        intensity = result.flops / result.bytes
        points.append(Point(each.id, each.label, intensity, rate, each.parents, each.order, each.best))
        eager = next((b.latency_ms for b in result.baselines if b.name == _EAGER), None)
        if eager and (each.best or len(shown) == 1):
            base = 1e3 * result.bytes / eager
            points.append(Point(_EAGER, "PyTorch eager", intensity, base, baseline=True))
    task = problem.task
    return RooflinePicture(
        title=f"{task.name} ({task.precision.value}), {workload}",
        device=problem.device,
        roof=Roof(roof.bandwidth_bytes_s, roof.plain_flops_s, roof.best_flops_s, _fast_name(problem)),
        points=tuple(points),
    )


def picture_of_run(session: Session, peaks: Peaks | None = None) -> RooflinePicture | None:
    """Every valid candidate of a run, with arrows from parents to children."""
    ledger = session.ledger
    problem = ledger.begun.problem
    shown = []
    for number in ledger.found:
        trial, evaluation = ledger.trials[number], session.evaluation(number)
        if evaluation is None or not evaluation.ok:
            continue
        best = number == ledger.best
        speedup = evaluation.speedup() or 0.0
        label = f"best: trial {number}, {speedup:.3g}x PyTorch" if best else ""
        parents = tuple(ledger.trials[parent].candidate for parent in trial.parents if parent in ledger.trials)
        shown.append(Shown(trial.candidate, label, evaluation, parents, number, best))
    return picture_of(problem, ceilings(problem, peaks), shown)


def _result(evaluation: Evaluation, workload: str) -> WorkloadResult | None:
    return next((each for each in evaluation.workloads if each.workload == workload), None)


def _fast_name(problem: Problem) -> str:
    return "tensor cores" if problem.kind == "cuda" else "fastest arithmetic"
