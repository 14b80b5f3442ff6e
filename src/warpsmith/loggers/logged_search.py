"""Observes a search and hands its figures to loggers.

    with logging_run(session, view, ("mlflow",)) as observer:
        active.search(observer)

Per trial: speedup, validity, the best so far, and what was spent by then. At the beginning the parameters of the run,
at the end the best kernel and the report.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from warpsmith.loggers.run_logger import LoggedEnd, LoggedRun, LoggedTrial, LoggerThread, chosen_logger
from warpsmith.model.brief import TrialOutcome, TrialRecord
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.report import page
from warpsmith.report.run_history import read_history
from warpsmith.report.run_page import run_page
from warpsmith.run_log.events import FAILURES, StopReason
from warpsmith.search.loop import PassingObserver, SearchObserver
from warpsmith.search.session import Session
from warpsmith.search.trials import Trial

REPORT = "report.html"


def check_loggers(specs: Sequence[str]) -> None:
    """Raise where a logger is unknown or its library is not installed: before anything is spent."""
    for spec in specs:
        chosen_logger(spec)


@contextmanager
def logging_run(session: Session, view: SearchObserver, specs: Sequence[str]) -> Iterator[SearchObserver]:
    """An observer that passes events on to a view and logs them."""
    observer = LoggedSearch(session, view, specs)
    try:
        yield observer
    finally:
        observer.end()


class LoggedSearch(PassingObserver):
    """Passes events on to a view, and figures to loggers.

    Complaints of loggers go to the view as messages; where nobody looks, to Python's `logging`.
    """

    def __init__(self, session: Session, view: SearchObserver, specs: Sequence[str]) -> None:
        super().__init__(view)
        self._session = session
        silent = type(view) is SearchObserver
        self._say = logging.getLogger("warpsmith").warning if silent else view.message
        run, folder = _run(session), session.folder
        last = session.state.last_trial
        # The log is read in the thread of the logger; later trials come one by one.
        self._threads = [LoggerThread(spec, run, lambda: _earlier(folder, last)) for spec in dict.fromkeys(specs)]

    def recorded(self, record: TrialRecord, evaluation: Evaluation | None) -> None:
        super().recorded(record, evaluation)
        if record.trial and record.outcome is not TrialOutcome.PENDING:
            trial = LoggedTrial(record.trial, time.time(), self._metrics(self._session.state.trials[record.trial]))
            for thread in self._threads:
                thread.trial(trial)
        self._say_faults()

    def end(self) -> None:
        """Log how the run stopped, with the best kernel and the report."""
        closed = self._session.state.closed
        finished = closed is not None and closed.reason not in (*FAILURES, StopReason.INTERRUPTED)
        with tempfile.TemporaryDirectory(prefix="warpsmith-log-") as folder:
            end = LoggedEnd(finished, closed.words if closed else "", self._artifacts(Path(folder)))
            for thread in self._threads:
                thread.end(end)
        self._say_faults()

    def _metrics(self, trial: Trial) -> dict[str, float]:
        state = self._session.state
        best, used = state.trials.get(state.best), state.totals
        return _figures(
            trial,
            best.score if best else None,
            (used.cost_usd, used.tokens, used.device_seconds, self._session.elapsed()),
        )

    def _artifacts(self, folder: Path) -> tuple[Path, ...]:
        found = []
        with suppress(WarpsmithError, OSError):
            document, texts = run_page(self._session.folder)
            page.write(document, folder / REPORT, texts)
            found.append(folder / REPORT)
        if self._session.state.best:
            with suppress(WarpsmithError, OSError):
                kernel = self._session.candidate(self._session.state.best).main
                place = folder / f"best{Path(kernel.name).suffix}"
                place.write_text(kernel.text, encoding="utf-8")
                found.append(place)
        return tuple(found)

    def _say_faults(self) -> None:
        for thread in self._threads:
            if thread.fault:
                self._say(thread.fault)
        self._threads = [thread for thread in self._threads if not thread.fault]


def _figures(trial: Trial, best: float | None, spent: tuple[float, ...]) -> dict[str, float]:
    metrics = {"valid": float(trial.score is not None)}
    if trial.score is not None:
        metrics["speedup"] = trial.score
    if best is not None:
        metrics["best_speedup"] = best
    return metrics | dict(zip(("cost_usd", "tokens", "device_seconds", "seconds"), map(float, spent), strict=True))


def _earlier(folder: Path, last: int) -> tuple[LoggedTrial, ...]:
    """The trials of a run up to one, from its log."""
    history = read_history(folder)
    state, found, best = history.state, [], None
    steps = {step.trial: step.speedup for step in history.steps}
    for used in history.totals:
        trial = state.trials.get(used.trial)
        if trial is None or trial.number > last or trial.number in state.pending:
            continue
        best = steps.get(trial.number, best)
        spent = (used.usd, used.tokens, used.device_s, used.seconds)
        found.append(LoggedTrial(trial.number, history.began_at + used.seconds, _figures(trial, best, spent)))
    return tuple(found)


def _run(session: Session) -> LoggedRun:
    setup, budget = session.state.setup, session.budget
    problem, config = setup.problem, setup.config
    sign = f"{session.began!r} {problem.task.digest} {config.seed} {session.folder.name}"
    parameters: dict[str, str | int | float] = {
        "task": problem.task.name,
        "precision": problem.task.precision.value,
        "device": problem.device,
        "backend": problem.backend,
        "method": setup.method.name,
        "proposer": session.proposer,
        "seed": config.seed,
        "trials": budget.trials,
        "warpsmith": setup.version,
    }
    for name in ("seconds", "tokens", "usd", "device_seconds"):
        if (limit := getattr(budget, name)) is not None:
            parameters[f"limit_{name}"] = limit
    return LoggedRun(hashlib.sha256(sign.encode()).hexdigest()[:16], session.folder.name, session.folder, parameters)
