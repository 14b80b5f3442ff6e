"""Profiles of the kernels that a run is about to build on, in the words a brief carries. What they say is
`evaluate.profiling`'s part, which ones are wanted is the session's.

A profile is help, not a verdict: whatever goes wrong with it is a note of the run, and the question is asked without.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Paths
from warpsmith.core.errors import WarpsmithError
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.method import Method, Product, Show
from warpsmith.core.search import Problem
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.profiling.profiler import Profiler
from warpsmith.run.opening import task_of
from warpsmith.run.session import Session


@dataclass(frozen=True)
class Sight:
    """What a look at a kernel has shown."""

    digest: str  # "" where nothing could be found out
    seconds: float  # what the look has cost
    reason: str = ""  # why there is no digest, or none of the best kind


class Look(Protocol):
    """Looks where the time of a valid candidate goes. Never raises for what a candidate or a tool does."""

    def __call__(self, candidate: Candidate, evaluation: Evaluation) -> Sight: ...


def pays(method: Method, proposer: str) -> bool:
    """Whether anybody reads the profiles: a recording does not, and the catalogue only to choose strategies by."""
    shown = [operator for operator in method.operators if Show.PROFILE in operator.shows]
    if proposer == "template":
        return any(operator.product is Product.STRATEGIES for operator in shown)
    return bool(shown) and not proposer.startswith("replay:")


@contextmanager
def looking(session: Session, evaluator: Evaluator, on_wait: Callable[[], None] = lambda: None) -> Iterator[Look]:
    """How kernels of a run are profiled on the evaluator's device."""
    config, problem = session.ledger.begun.config, session.ledger.begun.problem
    task = task_of(session.folder, config)
    precision = Precision(config.precision) if config.precision else None
    limits = evaluator.settings.limits
    with Profiler(evaluator.device, paths=Paths.from_environment(), limits=limits, on_wait=on_wait) as profiler:

        def look(candidate: Candidate, evaluation: Evaluation) -> Sight:
            return _look(profiler, task, candidate, problem, evaluation, precision)

        yield look


def _look(
    profiler: Profiler,
    task: str,
    candidate: Candidate,
    problem: Problem,
    evaluation: Evaluation,
    precision: Precision | None,
) -> Sight:
    since = time.monotonic()
    try:
        found = profiler.profile(task, candidate, problem, evaluation, precision)
    except (WarpsmithError, OSError, ValueError, LookupError, ArithmeticError, subprocess.SubprocessError) as fault:
        return Sight("", time.monotonic() - since, f"{candidate.main.name} could not be profiled ({fault}).")
    return Sight(found.digest.text if found.digest else "", time.monotonic() - since, found.reason)


class Eyes:
    """Keeps what looks have shown with a session, and says once what was not possible."""

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        self._session = session
        self._say = say
        self._said: set[str] = set()

    def keep(self, trial: int, sight: Sight) -> None:
        """One trial was looked at."""
        self._session.profiled(trial, sight.digest, sight.seconds)
        if sight.reason and sight.reason not in self._said:
            self._said.add(sight.reason)
            self._session.note(f"profile of trial {trial}: {sight.reason}")
            self._say(f"profiling: {sight.reason}")


def profile_next(session: Session, look: Look, say: Callable[[str], None] = lambda _: None) -> int:
    """Profile what the next question will build on, here and now; how many kernels that were."""
    eyes, count = Eyes(session, say), 0
    for trial in session.unprofiled():
        evaluation = session.evaluation(trial)
        assert evaluation is not None, "only what was judged is built on"
        eyes.keep(trial, look(session.candidate(trial), evaluation))
        count += 1
    return count
