"""Drives a session: several proposals in flight, verdicts reached meanwhile, until the budget or the user says stop.

The session stays in the caller's thread; proposers and the evaluator work in theirs and put what they have into one
queue. Replies are kept the moment they are taken out of it, before anything is done with them.

Kernels that the next question builds on are profiled first, where somebody can: that question waits for it, replies
under way do not. The evaluator has one batch at a time, so that of the kernels judged together only the fastest is
measured once more.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from warpsmith.core.candidate import Candidate
from warpsmith.core.errors import ProposerFault, ProposerRefused, RunError
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.search import Brief, Outcome, Prompt, Proposer, Record, Reply
from warpsmith.run.budgets import REASONS
from warpsmith.run.judging import Evaluate, Glance, Judging, Left, Seen, Verdict, turn
from warpsmith.run.profiling import Eyes, Look
from warpsmith.run.session import Job, Session

_LAST_CALLS_S = 630.0  # how long replies that may be paid for are waited for at the end: longer than a request takes
_HURRIED = ("time", "device_time", "interrupted")  # reasons to end that leave verdicts for the next sitting
_CONFIRMATIONS = 3  # second measurements at most once the time is up: without one there is no best kernel


class Watcher:
    """Sees what happens. This one does nothing with it; override what you want to see."""

    def asked(self, brief: Brief) -> None:
        """A proposer is about to work on a brief."""

    def replied(self, brief: Brief, reply: Reply) -> None:
        """It has answered."""

    def failed(self, brief: Brief, reason: str) -> None:
        """It has not, and the trial is not spent."""

    def recorded(self, record: Record, evaluation: Evaluation | None) -> None:
        """A proposal was read, or judged."""

    def message(self, text: str) -> None:
        """Something worth a line."""


@dataclass(frozen=True)
class _Answer:
    brief: Brief
    reply: Reply | BaseException


_Arrival = _Answer | Verdict | Left | Seen | BaseException | None


class Loop:
    """One sitting of a run."""

    def __init__(
        self,
        session: Session,
        proposer: Proposer,
        evaluate: Evaluate,
        watcher: Watcher,
        *,
        parallel: int = 4,
        look: Look | None = None,  # profiles kernels that become parents
        prepare: Callable[[Sequence[Candidate]], None] = lambda _: None,  # builds while others are judged
    ) -> None:
        self._session = session
        self._proposer = proposer
        self._watcher = watcher
        self._parallel = max(1, parallel)
        self._arrived: queue.SimpleQueue[_Arrival] = queue.SimpleQueue()
        self._flying: set[int] = set()  # briefs with the proposer
        self._judging: set[int] = set()  # trials with the evaluator
        self._looking: set[int] = set()  # trials with the profiler
        self._refused = ""
        self._interrupted = False
        self._patient = True  # waits for replies under way
        self._hurried = ""  # the reason to end, where verdicts are left for the next sitting
        self._confirmations = 0  # made in a hurry
        self._evaluate = evaluate
        self._look = look
        self._prepare = prepare
        self._eyes = Eyes(session, watcher.message)

    def run(self) -> str:
        """Work until there is a reason to stop, and say which: a key of `budgets.REASONS`."""
        pool = ThreadPoolExecutor(min(self._parallel, self._proposer.concurrency), thread_name_prefix="propose")
        judging = Judging(self._evaluate, self._arrived.put, self._look)
        failed = True
        try:
            reason = self._search(pool, judging)
            failed = False
        finally:
            judging.close()
            try:
                self._leave(failed=failed)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return reason

    def interrupt(self) -> None:
        """Stop soon, from a signal handler or another thread; the second time without waiting for replies."""
        self._patient = not self._interrupted
        self._interrupted = True
        self._arrived.put(None)

    def _search(self, pool: ThreadPoolExecutor, judging: Judging) -> str:
        """Work, and go on where what was under way has undone the reason to stop: a trial that we failed to judge is
        not spent. A proposer that failed is not tried again, though a late reply comes."""
        first = ""
        while True:
            left = self._work(pool, judging)
            first = first or left
            reason = self._reason()
            if reason or not left or left == "proposer_failed" or self._hurried:
                return reason or left or first

    def _work(self, pool: ThreadPoolExecutor, judging: Judging) -> str:
        """Why it was left; "" where there was nothing to ask and nothing to wait for."""
        while not (reason := self._reason()):
            self._hand_in(judging)
            self._ask(pool, judging)
            if not self._flying and not self._judging and not self._looking:
                return ""
            self._wait(self._left_s())
        self._finish(judging)
        return reason

    def _leave(self, *, failed: bool) -> None:
        """Keep all that has come, whatever goes wrong with single ones of it, and, where the run failed, the replies
        under way: they may be paid for. The first error is raised, unless one is on its way already."""
        self._judging.clear()
        if failed:
            self._interrupted = True  # the next time without waiting
            self._say_waiting()
        error: Exception | None = None
        until = time.monotonic() + _LAST_CALLS_S
        while not self._arrived.empty() or (failed and self._flying and self._patient and time.monotonic() < until):
            try:
                self._wait(0.5)
            except Exception as fault:  # noqa: BLE001  (raised below, once the others are kept)
                error = error or fault
                self._patient = self._patient and not isinstance(fault, RunError)  # nothing more can be kept
        if error is not None and not failed:
            raise error

    def _say_waiting(self) -> None:
        if self._flying and self._patient:
            replies, them = ("1 reply", "it") if len(self._flying) == 1 else (f"{len(self._flying)} replies", "them")
            self._watcher.message(f"waiting for {replies} under way (Ctrl-C again to leave {them})")

    def _finish(self, judging: Judging) -> None:
        """Take in what is under way; ask for nothing new."""
        self._say_waiting()
        until = time.monotonic() + _LAST_CALLS_S
        while self._conclude(judging) or (self._flying and self._patient and time.monotonic() < until):
            self._wait(0.5)

    def _conclude(self, judging: Judging) -> bool:
        """Hand in what is judged before the end; whether verdicts are waited for."""
        reason = self._reason()
        if reason in _HURRIED and not self._hurried:
            self._hurried = reason
            self._judging.difference_update(job.trial for job in judging.drop())
        if reason == "interrupted":
            return False
        if self._hurried:
            self._confirm(judging)
        else:
            self._hand_in(judging)
        return bool(self._judging)

    def _confirm(self, judging: Judging) -> None:
        """The second measurement of the kernel that would be the best, and nothing else: without it, what was found
        would be lost to whoever set the limit."""
        if self._judging or self._confirmations == _CONFIRMATIONS:
            return
        again = [job for job in self._session.pending() if job.again]
        if not again:
            return
        if not self._confirmations:
            self._watcher.message(f"{REASONS[self._hurried]}: measuring the best kernel a second time")
        self._confirmations += 1
        self._submit(again, judging)

    def _reason(self) -> str:
        if self._interrupted:
            return "interrupted"
        return "proposer_refused" if self._refused else self._session.stopped_because

    @property
    def refused(self) -> str:
        """What the proposer said when it gave up; "" where it did not."""
        return self._refused

    def _left_s(self) -> float:
        """How long to wait at most before looking at the clock again."""
        seconds = self._session.budget.seconds
        if seconds is None:
            return 3600.0
        return min(3600.0, max(0.0, seconds - self._session.elapsed()) + 0.01)

    def _ask(self, pool: ThreadPoolExecutor, judging: Judging) -> None:
        # Verdicts on what was proposed guide what is asked next: no more is under way than keeps everybody busy, and
        # no brief is made before somebody can take it.
        most = min(self._parallel, self._proposer.concurrency)
        while len(self._flying) < most and len(self._flying) + len(self._session.ledger.pending) < self._parallel:
            if self._reason() or self._glances(judging):
                return
            brief = self._session.ask()
            if brief is None:
                return
            prompt = self._proposer.prompt(brief)
            self._session.sent(brief, prompt)
            self._watcher.asked(brief)
            self._flying.add(brief.number)
            pool.submit(self._propose, brief, prompt)

    def _glances(self, judging: Judging) -> bool:
        """Have profiled what the next question builds on; whether that question is to wait for it."""
        wanted = self._session.unprofiled() if self._look is not None else ()
        for trial in wanted:
            evaluation = self._session.evaluation(trial)
            if trial not in self._looking and evaluation is not None:
                self._looking.add(trial)
                judging.submit([Glance(trial, self._session.candidate(trial), evaluation)])
        return bool(wanted)

    def _propose(self, brief: Brief, prompt: Prompt) -> None:
        """In a thread of the pool."""
        try:
            reply: Reply | BaseException = self._proposer.propose(brief, prompt)
        except BaseException as error:  # noqa: BLE001  (a thread's top frame: the run's own thread raises it)
            reply = error
        self._arrived.put(_Answer(brief, reply))

    def _hand_in(self, judging: Judging) -> None:
        """What is pending, once the evaluator is free."""
        if not self._judging and self._session.ledger.pending:
            self._submit(turn(self._session.pending()), judging)

    def _submit(self, jobs: list[Job], judging: Judging) -> None:
        self._judging.update(job.trial for job in jobs)
        judging.submit(jobs)

    def _wait(self, seconds: float) -> None:
        try:
            arrived = self._arrived.get(timeout=max(0.01, seconds))
        except queue.Empty:
            return
        self._take(arrived)

    def _take(self, arrived: _Arrival) -> None:
        if arrived is None:  # only to wake us
            return
        if isinstance(arrived, BaseException):  # of the judging thread
            raise arrived
        if isinstance(arrived, Verdict):
            self._judged(arrived)
            return
        if isinstance(arrived, Left):
            self._judging.difference_update(job.trial for job in arrived.jobs)
            return
        if isinstance(arrived, Seen):
            self._looking.discard(arrived.trial)
            self._eyes.keep(arrived.trial, arrived.sight)
            return
        brief, reply = arrived.brief, arrived.reply
        self._flying.discard(brief.number)
        if isinstance(reply, Reply):
            self._session.received(brief, reply)
            self._watcher.replied(brief, reply)
            record = self._session.answer(brief, reply)
            if record.outcome is Outcome.PENDING and self._judging:
                self._prepare([self._session.candidate(record.trial)])
            self._watcher.recorded(record, None)
        elif isinstance(reply, ProposerFault):
            self._session.failed(brief, str(reply), reply.usage)
            self._watcher.failed(brief, str(reply))
            if isinstance(reply, ProposerRefused):
                self._refused = str(reply)
        else:
            raise reply

    def _judged(self, verdict: Verdict) -> None:
        self._judging.discard(verdict.job.trial)
        for record, evaluation in _records(self._session, verdict.job, verdict.evaluation):
            self._watcher.recorded(record, evaluation)


def judge_pending(session: Session, evaluate: Evaluate, on_record: Callable[[Record, Evaluation], None]) -> int:
    """Judge everything that is pending, and what that makes pending; how many verdicts were reached."""
    count = 0
    while batch := turn(session.pending()):
        for position, evaluation in evaluate([job.candidate for job in batch], fresh=batch[0].again):
            for told in _records(session, batch[position], evaluation):
                on_record(*told)
            count += 1
    return count


def _records(session: Session, job: Job, evaluation: Evaluation) -> Iterator[tuple[Record, Evaluation]]:
    """Keep a verdict; what became of its candidate, and of those that need no second measurement after it."""
    waiting = set(session.ledger.contenders)
    yield session.judge(job, evaluation), evaluation
    for trial in sorted(waiting - {job.trial} - set(session.ledger.contenders)):
        known = session.evaluation(trial)
        assert known is not None, "it was measured once"
        yield session.record(trial), known
