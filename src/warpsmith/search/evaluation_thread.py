"""Evaluates in the background: one thread owns the evaluator and gets work while models are still thinking.

Everything submitted by the time the thread is free is evaluated as one batch, so that compilers run in parallel.
Profiles are taken in the same thread, between batches: a profiler would disturb timing.

An engine with several devices takes work from several threads, one candidate each (`width`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.search.profiles import ProfileKernel, ProfileResult
from warpsmith.search.session import PendingTrial


class Evaluate(Protocol):
    """Evaluates candidates of the run's task; with `fresh` even if a result is cached."""

    def __call__(self, candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        """Yield (position, evaluation) in any order, each position once."""
        ...


@dataclass(frozen=True)
class JudgedTrial:
    """A pending trial with its evaluation."""

    job: PendingTrial
    evaluation: Evaluation


@dataclass(frozen=True)
class DroppedTrials:
    """Pending trials of a batch that was dropped before they were evaluated."""

    jobs: tuple[PendingTrial, ...]


@dataclass(frozen=True)
class ProfileRequest:
    """A valid candidate to be profiled."""

    trial: int
    candidate: Candidate
    evaluation: Evaluation


@dataclass(frozen=True)
class ProfiledTrial:
    """The profile of a trial."""

    trial: int
    result: ProfileResult


def next_batch(jobs: Sequence[PendingTrial]) -> list[PendingTrial]:
    """The trials to evaluate next: first the one measured a second time, since others are compared with it."""
    return [job for job in jobs if job.again] or list(jobs)


class EvaluationThread:
    """The thread, or `width` threads. It calls `deliver` with each result; after it delivers an exception it ends."""

    def __init__(
        self,
        evaluate: Evaluate,
        deliver: Callable[[JudgedTrial | DroppedTrials | ProfiledTrial | BaseException], None],
        profile: ProfileKernel | None = None,
        width: int = 1,
    ) -> None:
        self._width = width
        self._evaluate = evaluate
        self._profile = profile
        self._deliver = deliver
        self._waiting: list[PendingTrial] = []
        self._profiles: list[ProfileRequest] = []
        self._changed = threading.Condition()
        self._ending = False
        self._dropped = False  # the batch in progress
        self._threads = [
            threading.Thread(target=self._run, name=f"evaluation-{number}", daemon=True) for number in range(width)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Sequence[PendingTrial | ProfileRequest]) -> None:
        """Add work; does not wait for it."""
        with self._changed:
            self._waiting.extend(each for each in work if isinstance(each, PendingTrial))
            self._profiles.extend(each for each in work if isinstance(each, ProfileRequest))
            self._changed.notify_all()

    def drop(self) -> tuple[PendingTrial, ...]:
        """Drop all work that was not begun, and return its trials.

        A batch in progress ends with the candidate being evaluated; the rest of it is delivered as `DroppedTrials`.
        """
        with self._changed:
            dropped = tuple(self._waiting)
            self._waiting.clear()
            self._profiles.clear()
            self._dropped = True
            return dropped

    def close(self) -> None:
        """Finish the candidate being evaluated and end the thread."""
        with self._changed:
            self._waiting.clear()
            self._profiles.clear()
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _next(self) -> list[PendingTrial] | ProfileRequest | None:
        """The next work; None at the end. Profiles come first: they are quick, and a brief waits for them."""
        with self._changed:
            while not self._waiting and not self._profiles and not self._ending:
                self._changed.wait()
            self._dropped = False
            if self._profiles:
                return self._profiles.pop(0)
            batch = next_batch(self._waiting) if self._width == 1 else self._waiting[:1]
            self._waiting = [job for job in self._waiting if job not in batch]
            return batch or None

    def _run(self) -> None:
        try:
            while (work := self._next()) is not None and not self._ending:
                if isinstance(work, ProfileRequest):
                    assert self._profile is not None, "profiles are requested only if there is a profiler"
                    self._deliver(ProfiledTrial(work.trial, self._profile(work.candidate, work.evaluation)))
                else:
                    self._judge(work)
        except BaseException as error:  # noqa: BLE001  (a thread's top frame: the run's own thread raises it)
            self._deliver(error)

    def _judge(self, batch: Sequence[PendingTrial]) -> None:
        left = dict(enumerate(batch))
        for position, evaluation in self._evaluate([job.candidate for job in batch], fresh=batch[0].again):
            self._deliver(JudgedTrial(left.pop(position), evaluation))
            if self._ending or self._dropped:
                break
        assert not left or self._ending or self._dropped, "every candidate is evaluated"
        if left and self._dropped:
            self._deliver(DroppedTrials(tuple(left.values())))
