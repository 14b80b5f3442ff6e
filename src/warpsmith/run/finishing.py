"""The last step of a run: the values that its best kernel declares tunable are tried, with no model.

A few points only, within the run's budget, and counted as its device time. A better point goes the way of every
candidate: it is judged, and measured once more before it stands as best. Searching by itself is `run.tuning`'s part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from warpsmith.archive import events
from warpsmith.backends.tunables import tunables
from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Evaluation
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.run.asking import TUNE
from warpsmith.run.loop import judge_pending
from warpsmith.run.opening import bench_of
from warpsmith.run.session import Session
from warpsmith.run.tuning import Judge, Tuned, settled, tune

POINTS = 8
"""Tried at most. More are worth it only where somebody asks for them: `warpsmith tune`."""

_VERDICTS = POINTS + 7  # with those measured in full, once more, and as the best of the run
_NO_MORE = ("time", "device_time", "interrupted", "evaluator_failed", "speed_of_light")  # reasons to end at once


def can_be_tuned(session: Session, reason: str) -> bool:
    """Whether a run that stopped for a reason has a best kernel with untried values, and the means left to try them."""
    ledger = session.ledger
    if reason in _NO_MORE or not ledger.best or ledger.best in ledger.tuned or ledger.trials[ledger.best].free:
        return False
    if not any(tunables(file.text) for file in session.candidate(ledger.best).files):
        return False
    totals, budget = ledger.totals, session.budget
    cost_s = _VERDICTS * totals.device_seconds / max(1, totals.judged)
    left = [
        limit - used
        for limit, used in ((budget.seconds, session.elapsed()), (budget.device_seconds, totals.device_seconds))
        if limit is not None
    ]
    return all(cost_s <= each for each in left)


def finish(session: Session, evaluator: Evaluator, stopping: Callable[[], bool] = lambda: False) -> Tuned:
    """Tune the best kernel of a run with its own evaluator, unless somebody stops it. See `can_be_tuned`."""
    bench, usual = bench_of(session, evaluator), evaluator.settings

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
    session: Session, judge: Judge, settings: Settings, stopping: Callable[[], bool] = lambda: False
) -> Tuned:
    """Try values of the best kernel; a point that is surely better is a candidate of the run then, to be judged.

    Where somebody stops it, nothing of it is kept: a resumed run tunes anew.
    """
    ledger, best = session.ledger, session.ledger.best
    candidate = session.candidate(best)
    since = time.monotonic()
    tuned = tune(judge, candidate, POINTS, ledger.begun.config.seed, settings=settings)
    if stopping():
        return tuned
    event = events.Tuned(best, tuned.tried, tuned.total, tuned.gain, time.monotonic() - since)
    better = None
    if tuned.improved and tuned.best is not None:
        better = _settled(tuned.best, candidate, ledger.trials[best].strategy or candidate.strategy)
    session.tuned(event, better if better != candidate else None)
    return tuned


def _settled(point: Candidate, origin: Candidate, strategy: str) -> Candidate:
    """The program with the point's values first in its lists, so that it needs no macros from outside."""
    values = ", ".join(f"{name}={value}" for name, value in point.defines)
    named = {each.name for each in tunables(point.main.text)}
    return replace(
        origin,
        files=(SourceFile(origin.main.name, settled(point)), *origin.files[1:]),
        defines=tuple((name, value) for name, value in point.defines if name not in named),
        parents=(origin.id,),
        operator=TUNE.name,
        thought=f"Tuned without a model: {values}.",
        strategy=strategy,
    )
