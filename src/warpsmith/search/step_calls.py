"""Answers what agents ask of a run while they work on a brief.

Agents call from threads of their own. Each call is carried out in the thread of the loop, which alone uses the session;
an evaluation is answered when the trial is judged. Nothing is evaluated once there is a reason to stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from warpsmith.model.brief import Reply, ShownCandidate, TrialOutcome, TrialRecord
from warpsmith.model.errors import UsageError
from warpsmith.model.run_tools import RunRoom, StepVerdict
from warpsmith.run_log.events import StopReason
from warpsmith.search.session import Session

_POLL_S = 0.2  # between two looks whether the loop has ended
_RECENT = 40  # trials that an agent is told of
_ENDED = "the run has ended; end now."
_T = TypeVar("_T")


@dataclass(frozen=True)
class StepCall:
    """One call of an agent, to be carried out in the thread of the loop."""

    act: Callable[[], None]


class StepCalls:
    """A `RunTools` for one loop; the methods under "the loop's side" are called in its thread."""

    def __init__(
        self,
        session: Session,
        put: Callable[[StepCall], None],
        stop_reason: Callable[[], StopReason | None],
        on_record: Callable[[TrialRecord], None],
        request_profile: Callable[[int], None] | None,
    ) -> None:
        self._session = session
        self._put = put
        self._stop_reason = stop_reason
        self._on_record = on_record
        self._request_profile = request_profile
        self._judging: dict[int, list[Future[StepVerdict]]] = {}
        self._profiling: dict[int, list[Future[str]]] = {}
        self._closed = threading.Event()

    # --- the agents' side ---

    def room(self, brief: int) -> RunRoom:
        """See `RunTools`."""
        return self._ask(self._answer_room)

    def evaluate(self, brief: int, reply: Reply) -> StepVerdict:
        """See `RunTools`."""
        return self._ask(lambda answer: self._evaluate(brief, reply, answer))

    def profile(self, trial: int) -> str:
        """See `RunTools`."""
        return self._ask(lambda answer: self._profile(trial, answer))

    def trials(self) -> tuple[ShownCandidate, ...]:
        """See `RunTools`."""
        return self._ask(self._answer_trials)

    def trial(self, number: int) -> ShownCandidate:
        """See `RunTools`."""

        def read(answer: Future[ShownCandidate]) -> None:
            answer.set_result(self._session.shown(number))

        return self._ask(read)

    def _ask(self, act: Callable[[Future[_T]], None]) -> _T:
        answer: Future[_T] = Future()

        def carry_out() -> None:
            try:
                if self._closed.is_set():
                    raise UsageError(_ENDED)
                act(answer)
            except UsageError as refused:
                answer.set_exception(refused)

        self._put(StepCall(carry_out))
        while not self._closed.is_set():
            with suppress(NotDone):
                return answer.result(timeout=_POLL_S)
        if answer.done():
            return answer.result()
        raise UsageError(_ENDED)

    # --- the loop's side ---

    def judged(self, trial: int) -> None:
        """A trial was judged: answer those who wait for it."""
        for answer in self._judging.pop(trial, ()):
            answer.set_result(self._verdict(self._session.record(trial), known=False))

    def profiled(self, trial: int) -> None:
        """A trial was profiled: answer those who wait for it."""
        for answer in self._profiling.pop(trial, ()):
            self._give_digest(trial, answer)

    def give_up(self, judging: Collection[int]) -> None:
        """The run stops at once: answer all who wait, apart from those whose trials are being judged."""
        for trial in [each for each in self._judging if each not in judging]:
            for answer in self._judging.pop(trial):
                answer.set_exception(UsageError(f"trial {trial} is judged when the run goes on; end now."))
        for trial in tuple(self._profiling):
            for waiting in self._profiling.pop(trial):
                waiting.set_exception(UsageError("nothing more is profiled; leave your best kernel and end."))

    def close(self) -> None:
        """Answer nothing any more; calls that wait are refused."""
        self._closed.set()

    def _answer_room(self, answer: Future[RunRoom]) -> None:
        session = self._session
        seconds = session.budget.seconds
        left = None if seconds is None else max(0.0, seconds - session.elapsed())
        answer.set_result(RunRoom(0 if self._stop_reason() else session.room, left))

    def _evaluate(self, brief: int, reply: Reply, answer: Future[StepVerdict]) -> None:
        if reason := self._stop_reason():
            raise UsageError(f"nothing more is evaluated, because {reason.words}; leave your best kernel and end.")
        before = self._session.state.last_trial
        record = self._session.step_trial(brief, reply)
        known = record.trial <= before
        if not known:
            self._on_record(record)
        if record.outcome is TrialOutcome.PENDING and record.status is None:
            self._judging.setdefault(record.trial, []).append(answer)
        else:
            answer.set_result(self._verdict(record, known=known))

    def _verdict(self, record: TrialRecord, *, known: bool) -> StepVerdict:
        waiting = record.outcome is TrialOutcome.PENDING
        return StepVerdict(self._session.shown(record.trial), record.best, waiting, known)

    def _profile(self, trial: int, answer: Future[str]) -> None:
        session = self._session
        if trial not in session.state.trials or session.state.trials[trial].score is None:
            raise UsageError(f"trial {trial} is no valid kernel of this run; profile a trial with the status ok.")
        if trial in session.state.profiled:
            self._give_digest(trial, answer)
            return
        if self._request_profile is None:
            raise UsageError("this run takes no profiles; go by the verdicts.")
        if reason := self._stop_reason():
            raise UsageError(f"nothing more is profiled, because {reason.words}; leave your best kernel and end.")
        waiting = self._profiling.setdefault(trial, [])
        waiting.append(answer)
        if len(waiting) == 1:
            self._request_profile(trial)

    def _give_digest(self, trial: int, answer: Future[str]) -> None:
        digest = self._session.shown(trial).profile
        if digest:
            answer.set_result(digest)
        else:
            answer.set_exception(UsageError(f"trial {trial} could not be profiled; go by the verdicts."))

    def _answer_trials(self, answer: Future[tuple[ShownCandidate, ...]]) -> None:
        numbers = list(self._session.state.trials)[-_RECENT:]
        answer.set_result(tuple(replace(self._session.shown(number), files=()) for number in numbers))
