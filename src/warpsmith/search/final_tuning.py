"""Tunes the best kernel of a run at its end: tries the values that the kernel declares as tunable, without a model.

Only a few points are tried, within the run's budget, and their time counts as device time. A better point becomes an
ordinary candidate of the run: it is evaluated, and measured twice before it becomes the best.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from warpsmith.backends.tunables import tunables
from warpsmith.engine.engine import Engine
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings
from warpsmith.run_log.events import StopReason, TrialTuned
from warpsmith.search.loop import judge_pending
from warpsmith.search.next_brief import TUNE
from warpsmith.search.open_run import task_evaluator
from warpsmith.search.session import Session
from warpsmith.search.tuning import EvaluateBatch, TuningResult, source_with_values, tune

POINTS = 8
"""The most points tried. `warpsmith tune` tries more."""

_MAX_EVALUATIONS = POINTS + 7  # with the points measured in full, again, and as the best of the run
_NO_TUNING = (  # after these stop reasons
    StopReason.TIME,
    StopReason.DEVICE_TIME,
    StopReason.INTERRUPTED,
    StopReason.EVALUATOR_FAILED,
    StopReason.SPEED_OF_LIGHT,
)


def can_tune(session: Session, reason: StopReason) -> bool:
    """True if the best kernel of a stopped run has untried values, and the budget is enough to try them."""
    state = session.state
    if reason in _NO_TUNING or not state.best or state.best in state.tuned or state.trials[state.best].free:
        return False
    if not any(tunables(file.text) for file in session.candidate(state.best).files):
        return False
    totals, budget = state.totals, session.budget
    cost_s = _MAX_EVALUATIONS * totals.device_seconds / max(1, totals.judged)
    left = [
        limit - used
        for limit, used in ((budget.seconds, session.elapsed()), (budget.device_seconds, totals.device_seconds))
        if limit is not None
    ]
    return all(cost_s <= each for each in left)


def tune_and_judge(session: Session, evaluator: Engine, stopping: Callable[[], bool] = lambda: False) -> TuningResult:
    """Tune the best kernel of a run and evaluate the result, until `stopping` returns True. See `can_tune`."""
    bench, usual = task_evaluator(session, evaluator), evaluator.settings

    def judge(candidates: Sequence[Candidate], settings: Settings, *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        if evaluator.settings != settings:
            evaluator.renew(settings)
        for found in bench(candidates, fresh=fresh) if not stopping() else ():
            yield found
            if stopping():
                return

    try:
        tuned = tune_best(session, judge, usual, stopping)
    finally:
        if evaluator.settings != usual:
            evaluator.renew(usual)
    if not stopping():
        judge_pending(session, bench, lambda record, evaluation: None)
    return tuned


def tune_best(
    session: Session, judge: EvaluateBatch, settings: Settings, stopping: Callable[[], bool] = lambda: False
) -> TuningResult:
    """Try values of the best kernel; a point that is certainly better becomes a pending trial.

    If `stopping` returns True, nothing is stored: a resumed run tunes again.
    """
    state, best = session.state, session.state.best
    candidate = session.candidate(best)
    since = time.monotonic()
    tuned = tune(judge, candidate, POINTS, state.setup.config.seed, settings=settings)
    if stopping():
        return tuned
    event = TrialTuned(best, tuned.tried, tuned.total, tuned.gain, time.monotonic() - since)
    better = None
    if tuned.improved and tuned.best is not None:
        better = _settled(tuned.best, candidate, state.trials[best].strategy or candidate.strategy)
    session.tuned(event, better if better != candidate else None)
    return tuned


def _settled(point: Candidate, origin: Candidate, strategy: str) -> Candidate:
    """The candidate with the values of a point first in its lists, so that it needs no macros from outside."""
    values = ", ".join(f"{name}={value}" for name, value in point.defines)
    named = {each.name for each in tunables(point.main.text)}
    return replace(
        origin,
        files=(SourceFile(origin.main.name, source_with_values(point)), *origin.files[1:]),
        defines=tuple((name, value) for name, value in point.defines if name not in named),
        parents=(origin.id,),
        operator=TUNE.name,
        thought=f"Tuned without a model: {values}.",
        strategy=strategy,
    )
