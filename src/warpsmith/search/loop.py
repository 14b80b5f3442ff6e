"""Runs a session: several proposals in progress, evaluations at the same time, until the budget or the user says stop.

The session is used in the caller's thread only. Proposers and the evaluator work in their own threads and put results
into one queue. Replies are stored when they are taken out of the queue, before anything else is done with them.

Kernels that the next brief builds on are profiled first, if there is a profiler: that brief waits for the profile,
replies in progress do not. The evaluator gets one batch at a time, so that of the kernels evaluated together only the
fastest is measured a second time.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from warpsmith.model.brief import Brief, Prompt, Proposer, Reply, TrialOutcome, TrialRecord
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import ProposerFault, ProposerRefused, RunError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.run_tools import WorkingProposer
from warpsmith.run_log.events import StopReason
from warpsmith.search.evaluation_thread import (
    DroppedTrials,
    Evaluate,
    EvaluationThread,
    JudgedTrial,
    ProfiledTrial,
    ProfileRequest,
    next_batch,
)
from warpsmith.search.profiles import ProfileKernel, ProfileRecorder
from warpsmith.search.session import PendingTrial, Session
from warpsmith.search.step_calls import StepCall, StepCalls

_LAST_CALLS_S = 630.0  # wait for replies at the end, since they may be paid for: longer than one request takes
_HURRIED = (StopReason.TIME, StopReason.DEVICE_TIME, StopReason.INTERRUPTED)  # evaluations wait for a resumed run
_MAX_CONFIRMATIONS = 3  # second measurements after the time is up: without one there is no best kernel


class SearchObserver:
    """Gets told what happens; does nothing. Override the methods you need."""

    def asked(self, brief: Brief) -> None:
        """A brief is given to the proposer."""

    def replied(self, brief: Brief, reply: Reply) -> None:
        """The proposer replied."""

    def failed(self, brief: Brief, reason: str) -> None:
        """The proposer gave no reply; no trial is spent."""

    def recorded(self, record: TrialRecord, evaluation: Evaluation | None) -> None:
        """A proposal was parsed (evaluation is None) or evaluated."""

    def message(self, text: str) -> None:
        """A message for the user."""


class PassingObserver(SearchObserver):
    """Passes everything on to another observer. The base of observers that do something besides."""

    def __init__(self, view: SearchObserver) -> None:
        self._view = view

    def asked(self, brief: Brief) -> None:
        self._view.asked(brief)

    def replied(self, brief: Brief, reply: Reply) -> None:
        self._view.replied(brief, reply)

    def failed(self, brief: Brief, reason: str) -> None:
        self._view.failed(brief, reason)

    def recorded(self, record: TrialRecord, evaluation: Evaluation | None) -> None:
        self._view.recorded(record, evaluation)

    def message(self, text: str) -> None:
        self._view.message(text)


@dataclass(frozen=True)
class _Answer:
    brief: Brief
    reply: Reply | BaseException


_Arrival = _Answer | JudgedTrial | DroppedTrials | ProfiledTrial | StepCall | BaseException | None


class SearchLoop:
    """Works on a run until it stops."""

    def __init__(
        self,
        session: Session,
        proposer: Proposer,
        evaluate: Evaluate,
        observer: SearchObserver,
        *,
        parallel: int = 4,
        profile: ProfileKernel | None = None,  # profiles kernels that become parents
        prepare: Callable[[Sequence[Candidate]], None] = lambda _: None,  # builds while others are evaluated
        width: int = 1,  # candidates that are evaluated at the same time
    ) -> None:
        self._session = session
        self._proposer = proposer
        self._observer = observer
        self._parallel = max(1, parallel)
        self._arrived: queue.SimpleQueue[_Arrival] = queue.SimpleQueue()
        self._with_proposer: set[int] = set()  # briefs with the proposer
        self._with_evaluator: set[int] = set()  # trials with the evaluator
        self._with_profiler: set[int] = set()  # trials with the profiler
        self._refused = ""
        self._interrupted = False
        self._waits = True  # for replies in progress
        self._hurried: StopReason | None = None  # the reason to stop at once, if evaluations are left for a resumed run
        self._confirmations = 0  # second measurements after the time was up
        self._evaluate = evaluate
        self._profile = profile
        self._prepare = prepare
        self._width = max(1, min(width, self._parallel))
        self._profiles = ProfileRecorder(session, observer.message)
        self._step_calls: StepCalls | None = None  # where the proposer uses the run's tools

    def run(self) -> StopReason:
        """Work until there is a reason to stop; returns the reason."""
        pool = ThreadPoolExecutor(min(self._parallel, self._proposer.concurrency), thread_name_prefix="propose")
        thread = EvaluationThread(self._evaluate, self._arrived.put, self._profile, self._width)
        self._bind(thread)
        failed = True
        try:
            reason = self._search(pool, thread)
            failed = False
        finally:
            thread.close()
            try:
                if self._step_calls is not None:
                    self._step_calls.close()
                self._leave(failed=failed)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return reason

    def _bind(self, thread: EvaluationThread) -> None:
        """Let a proposer that works with tools use those of this run."""
        if isinstance(self._proposer, WorkingProposer):
            self._step_calls = StepCalls(
                self._session,
                self._arrived.put,
                self._reason,
                lambda record: self._observer.recorded(record, None),
                (lambda trial: self._profile_trial(trial, thread)) if self._profile is not None else None,
            )
            self._proposer.bind(self._step_calls)

    def interrupt(self) -> None:
        """Stop soon; the second call does not wait for replies. Safe in a signal handler or another thread."""
        self._waits = not self._interrupted
        self._interrupted = True
        self._arrived.put(None)

    def _search(self, pool: ThreadPoolExecutor, thread: EvaluationThread) -> StopReason:
        """Work until a reason to stop holds.

        A result that arrives late can undo the reason: a trial whose evaluation failed is not spent. Only a proposer
        that failed is not asked again, even if a late reply comes.
        """
        first: StopReason | None = None
        while True:
            left = self._work(pool, thread)
            first = first or left
            reason = self._reason()
            if reason or not left or left is StopReason.PROPOSER_FAILED or self._hurried:
                return reason or left or first or StopReason.TOLD

    def _work(self, pool: ThreadPoolExecutor, thread: EvaluationThread) -> StopReason | None:
        """Work until there is a reason to stop; None if there is nothing to ask and nothing to wait for."""
        while not (reason := self._reason()):
            self._hand_in(thread)
            self._ask(pool, thread)
            if not self._with_proposer and not self._with_evaluator and not self._with_profiler:
                return None
            self._wait(self._left_s())
        self._finish(thread)
        return reason

    def _leave(self, *, failed: bool) -> None:
        """Store everything that has arrived, even if storing one of the results fails.

        If the run failed, also wait for replies in progress: they may be paid for. Then raise the first error, unless
        the run's own error is being raised.
        """
        self._with_evaluator.clear()
        if failed:
            self._interrupted = True  # a second Ctrl-C does not wait
            self._say_waiting()
        error: Exception | None = None
        until = time.monotonic() + _LAST_CALLS_S
        while not self._arrived.empty() or (
            failed and self._with_proposer and self._waits and time.monotonic() < until
        ):
            try:
                self._wait(0.5)
            except Exception as fault:  # noqa: BLE001  (raised below, once the others are stored)
                error = error or fault
                self._waits = self._waits and not isinstance(fault, RunError)  # nothing more can be stored
        if error is not None and not failed:
            raise error

    def _say_waiting(self) -> None:
        if self._with_proposer and self._waits:
            replies, them = (
                ("1 reply", "it") if len(self._with_proposer) == 1 else (f"{len(self._with_proposer)} replies", "them")
            )
            self._observer.message(f"waiting for {replies} in progress (Ctrl-C again to leave {them})")

    def _finish(self, thread: EvaluationThread) -> None:
        """Wait for what is in progress; ask for nothing new."""
        self._say_waiting()
        until = time.monotonic() + _LAST_CALLS_S
        while self._conclude(thread) or (self._with_proposer and self._waits and time.monotonic() < until):
            self._wait(0.5)

    def _conclude(self, thread: EvaluationThread) -> bool:
        """Submit what is evaluated before the end; True if evaluations have to be waited for."""
        reason = self._reason()
        if reason in _HURRIED and not self._hurried:
            self._hurried = reason
            self._with_evaluator.difference_update(job.trial for job in thread.drop())
        if self._hurried and self._step_calls is not None:
            self._step_calls.give_up(self._with_evaluator)
        if reason is StopReason.INTERRUPTED:
            return False
        if self._hurried:
            self._confirm(thread)
        else:
            self._hand_in(thread)
        return bool(self._with_evaluator)

    def _confirm(self, thread: EvaluationThread) -> None:
        """Submit only the second measurement of the kernel that would be the best: without it there is no result."""
        if self._with_evaluator or self._confirmations == _MAX_CONFIRMATIONS:
            return
        again = [job for job in self._session.pending() if job.again]
        if not again:
            return
        if not self._confirmations and self._hurried:
            self._observer.message(f"{self._hurried.words}: measuring the best kernel a second time")
        self._confirmations += 1
        self._submit(again, thread)

    def _reason(self) -> StopReason | None:
        if self._interrupted:
            return StopReason.INTERRUPTED
        return StopReason.PROPOSER_REFUSED if self._refused else self._session.stop_reason

    @property
    def refused(self) -> str:
        """The message of a proposer that gives no more replies; "" otherwise."""
        return self._refused

    def _left_s(self) -> float:
        """Seconds until the time limit has to be checked again."""
        seconds = self._session.budget.seconds
        if seconds is None:
            return 3600.0
        return min(3600.0, max(0.0, seconds - self._session.elapsed()) + 0.01)

    def _ask(self, pool: ThreadPoolExecutor, thread: EvaluationThread) -> None:
        # Evaluations guide the next brief: no more is in progress than keeps all workers busy, and no brief is made
        # before a worker is free.
        most = min(self._parallel, self._proposer.concurrency)
        while (
            len(self._with_proposer) < most
            and len(self._with_proposer) + len(self._session.state.pending) < self._parallel
        ):
            if self._reason() or self._request_profiles(thread):
                return
            asked = self._session.ask_and_word(self._proposer.prompt)
            if asked is None:
                return
            brief, prompt = asked
            self._observer.asked(brief)
            self._with_proposer.add(brief.number)
            pool.submit(self._propose, brief, prompt)

    def _request_profiles(self, thread: EvaluationThread) -> bool:
        """Request profiles of the kernels that the next brief builds on; True if that brief has to wait for them."""
        wanted = self._session.unprofiled() if self._profile is not None else ()
        for trial in wanted:
            self._profile_trial(trial, thread)
        return bool(wanted)

    def _profile_trial(self, trial: int, thread: EvaluationThread) -> None:
        evaluation = self._session.evaluation(trial)
        if trial not in self._with_profiler and evaluation is not None:
            self._with_profiler.add(trial)
            thread.submit([ProfileRequest(trial, self._session.candidate(trial), evaluation)])

    def _propose(self, brief: Brief, prompt: Prompt) -> None:
        """Ask the proposer, in a thread of the pool, and put its answer into the queue."""
        try:
            reply: Reply | BaseException = self._proposer.propose(brief, prompt)
        except BaseException as error:  # noqa: BLE001  (a thread's top frame: the run's own thread raises it)
            reply = error
        self._arrived.put(_Answer(brief, reply))

    def _hand_in(self, thread: EvaluationThread) -> None:
        """Submit what is pending, once the evaluator is free, or once one of several devices is."""
        if self._width > 1 and len(self._with_evaluator) < self._width:
            waiting = [job for job in self._session.pending() if job.trial not in self._with_evaluator]
            waiting.sort(key=lambda job: not job.again)
            self._submit(waiting[: self._width - len(self._with_evaluator)], thread)
        elif not self._with_evaluator and self._session.state.pending:
            self._submit(next_batch(self._session.pending()), thread)

    def _submit(self, jobs: list[PendingTrial], thread: EvaluationThread) -> None:
        self._with_evaluator.update(job.trial for job in jobs)
        thread.submit(jobs)

    def _wait(self, seconds: float) -> None:
        try:
            arrived = self._arrived.get(timeout=max(0.01, seconds))
        except queue.Empty:
            return
        self._take(arrived)

    def _take(self, arrived: _Arrival) -> None:
        if arrived is None:  # sent by `interrupt` to end the wait
            return
        if isinstance(arrived, BaseException):  # raised in the evaluation thread
            raise arrived
        if isinstance(arrived, JudgedTrial):
            self._judged(arrived)
            return
        if isinstance(arrived, DroppedTrials):
            self._with_evaluator.difference_update(job.trial for job in arrived.jobs)
            return
        if isinstance(arrived, ProfiledTrial):
            self._with_profiler.discard(arrived.trial)
            self._profiles.store(arrived.trial, arrived.result)
            if self._step_calls is not None:
                self._step_calls.profiled(arrived.trial)
            return
        if isinstance(arrived, StepCall):
            arrived.act()
            return
        brief, reply = arrived.brief, arrived.reply
        self._with_proposer.discard(brief.number)
        if isinstance(reply, Reply):
            self._session.received(brief, reply)
            self._observer.replied(brief, reply)
            record = self._session.answer(brief, reply)
            if record.outcome is TrialOutcome.PENDING and self._with_evaluator:
                self._prepare([self._session.candidate(record.trial)])
            self._observer.recorded(record, None)
        elif isinstance(reply, ProposerFault):
            self._session.failed(brief, str(reply), reply.usage)
            self._observer.failed(brief, str(reply))
            if isinstance(reply, ProposerRefused):
                self._refused = str(reply)
        else:
            raise reply

    def _judged(self, verdict: JudgedTrial) -> None:
        self._with_evaluator.discard(verdict.job.trial)
        for record, evaluation in _records(self._session, verdict.job, verdict.evaluation):
            self._observer.recorded(record, evaluation)
        if self._step_calls is not None:
            self._step_calls.judged(verdict.job.trial)


def judge_pending(session: Session, evaluate: Evaluate, on_record: Callable[[TrialRecord, Evaluation], None]) -> int:
    """Evaluate everything pending, and what becomes pending by that; returns the number of evaluations."""
    count = 0
    while batch := next_batch(session.pending()):
        for position, evaluation in evaluate([job.candidate for job in batch], fresh=batch[0].again):
            for told in _records(session, batch[position], evaluation):
                on_record(*told)
            count += 1
    return count


def _records(session: Session, job: PendingTrial, evaluation: Evaluation) -> Iterator[tuple[TrialRecord, Evaluation]]:
    """Store an evaluation; yield the records of its trial and of those that need no second measurement after it."""
    waiting = set(session.state.confirmation.waiting)
    yield session.judge(job, evaluation), evaluation
    for trial in sorted(waiting - {job.trial} - set(session.state.confirmation.waiting)):
        known = session.evaluation(trial)
        assert known is not None, "the trial was measured once"
        yield session.record(trial), known
