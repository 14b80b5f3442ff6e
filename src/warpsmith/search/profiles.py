"""Profiles the kernels that the next brief builds on.

A profile is help, not a verdict: if profiling fails, the run gets a note and the brief is made without a profile.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.method import Method, Product, Show
from warpsmith.model.settings import Paths
from warpsmith.model.task import Precision
from warpsmith.proposers.recorded import is_recording
from warpsmith.search.options import precision_of
from warpsmith.search.session import Session
from warpsmith.search.trust import task_to_execute
from warpsmith.strategies.catalogue import unfit_strategies

if TYPE_CHECKING:
    from warpsmith.engine.engine import Engine
    from warpsmith.profiling.profiler import Profile

_PROFILING_ERRORS = (WarpsmithError, OSError, ValueError, LookupError, ArithmeticError, subprocess.SubprocessError)


@dataclass(frozen=True)
class ProfileResult:
    """The profile of a kernel."""

    digest: str  # "" if profiling failed
    seconds: float  # device time
    reason: str = ""  # why there is no digest, or none of the best kind


class ProfileKernel(Protocol):
    """Profiles a valid candidate. Raises nothing for failures of the candidate or of a tool."""

    def __call__(self, candidate: Candidate, evaluation: Evaluation) -> ProfileResult: ...


@runtime_checkable
class ProfilesElsewhere(Protocol):
    """An engine whose devices are not in this process: it profiles where they are."""

    def profile(
        self,
        task: str | Path,
        candidate: Candidate,
        problem: Problem,
        evaluation: Evaluation,
        precision: Precision | None = None,
    ) -> Profile: ...


class KnownProfiles:
    """Profiles that the runs of a bench share: a kernel is profiled once for a task. Safe in several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[tuple[str, str], threading.Lock] = {}
        self._found: dict[tuple[str, str], ProfileResult] = {}

    def take(self, task: str, candidate: str, make: Callable[[], ProfileResult]) -> ProfileResult:
        """The profile of a candidate of a task, by their digests; `make` is called once, others wait for it."""
        with self._guard:
            turn = self._turns.setdefault((task, candidate), threading.Lock())
        with turn:
            if (task, candidate) in self._found:
                return replace(self._found[task, candidate], seconds=0.0)
            made = self._found[task, candidate] = make()
            return made


def reads_profiles(method: Method, proposer: str) -> bool:
    """True if the proposer reads profiles: a recording does not, and templates only to choose strategies."""
    if proposer.startswith("agent:"):
        return True  # it may ask for one of any kernel
    shown = [operator for operator in method.operators if Show.PROFILE in operator.shows]
    if proposer == "template":
        return any(operator.product is Product.STRATEGIES for operator in shown)
    return bool(shown) and not is_recording(proposer)


@contextmanager
def kernel_profiler(
    session: Session,
    evaluator: Engine,
    on_wait: Callable[[], None] = lambda: None,
    known: KnownProfiles | None = None,
) -> Iterator[ProfileKernel]:
    """A profiler for the kernels of a run, on the evaluator's device; `known` has those of other runs."""
    from warpsmith.kernel_templates import strategies_in_source  # reading a run needs neither
    from warpsmith.profiling.profiler import Profiler

    setup = session.state.setup
    problem, task, precision = setup.problem, task_to_execute(session.folder, setup), precision_of(setup.config)
    limits = evaluator.settings.limits
    own = Profiler(evaluator.device, paths=Paths.from_environment(), limits=limits, on_wait=on_wait)
    with nullcontext(evaluator) if isinstance(evaluator, ProfilesElsewhere) else own as profiler:

        def profile(candidate: Candidate, evaluation: Evaluation) -> ProfileResult:
            since = time.monotonic()
            try:
                found = profiler.profile(task, candidate, problem, evaluation, precision)
            except _PROFILING_ERRORS as fault:
                reason = f"{candidate.main.name} could not be profiled ({fault})."
                return ProfileResult("", time.monotonic() - since, reason)
            known = strategies_in_source(candidate.backend, candidate.main.text)
            digest = found.digest and found.digest.without(known | unfit_strategies(problem))
            return ProfileResult(digest.text if digest else "", time.monotonic() - since, found.reason)

        if known is None:
            yield profile
            return
        shared = known
        yield lambda candidate, evaluation: shared.take(
            problem.task.digest, candidate.id, lambda: profile(candidate, evaluation)
        )


class ProfileRecorder:
    """Stores profiles in a session, and reports each problem once."""

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        self._session = session
        self._say = say
        self._said: set[str] = set()

    def store(self, trial: int, result: ProfileResult) -> None:
        """Store the profile of a trial."""
        self._session.profiled(trial, result.digest, result.seconds)
        if result.reason and result.reason not in self._said:
            self._said.add(result.reason)
            self._session.note(f"profile of trial {trial}: {result.reason}")
            self._say(f"profiling: {result.reason}")


def profile_next(session: Session, profile: ProfileKernel, say: Callable[[str], None] = lambda _: None) -> int:
    """Profile the kernels that the next brief builds on; returns how many."""
    recorder, trials = ProfileRecorder(session, say), session.unprofiled()
    for trial in trials:
        evaluation = session.evaluation(trial)
        assert evaluation is not None, "only evaluated trials are built on"
        recorder.store(trial, profile(session.candidate(trial), evaluation))
    return len(trials)
