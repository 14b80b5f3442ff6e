"""Verdicts in the background: one thread that owns the evaluator, fed with jobs while models are still thinking.

Whatever has been handed in by the time it is free is judged as one batch, so that compilers run side by side. Profiles
are taken in the same thread, between batches: a profiler would disturb a clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from warpsmith.core.candidate import Candidate
from warpsmith.core.evaluation import Evaluation
from warpsmith.run.profiling import Look, Sight
from warpsmith.run.session import Job


class Evaluate(Protocol):
    """Judges candidates of the run's task; `fresh` ones even where a verdict is known."""

    def __call__(self, candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        """(position, verdict), as they come, each once."""
        ...


@dataclass(frozen=True)
class Verdict:
    """On one candidate."""

    job: Job
    evaluation: Evaluation


@dataclass(frozen=True)
class Left:
    """Jobs of a batch that was dropped before they were begun."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Glance:
    """A valid candidate to be profiled."""

    trial: int
    candidate: Candidate
    evaluation: Evaluation


@dataclass(frozen=True)
class Seen:
    """What a glance has shown."""

    trial: int
    sight: Sight


def turn(jobs: Sequence[Job]) -> list[Job]:
    """What is judged together next: a kernel that stands to be the best first, since others are measured against it."""
    return [job for job in jobs if job.again] or list(jobs)


class Judging:
    """The thread. `deliver` is called in it, with what was found, or with what went wrong, after which it ends."""

    def __init__(
        self,
        evaluate: Evaluate,
        deliver: Callable[[Verdict | Left | Seen | BaseException], None],
        look: Look | None = None,
    ) -> None:
        self._evaluate = evaluate
        self._look = look
        self._deliver = deliver
        self._waiting: list[Job] = []
        self._glances: list[Glance] = []
        self._changed = threading.Condition()
        self._ending = False
        self._dropped = False  # the batch being judged
        self._thread = threading.Thread(target=self._run, name="judging", daemon=True)
        self._thread.start()

    def submit(self, work: Sequence[Job | Glance]) -> None:
        """Hand in jobs; does not wait."""
        with self._changed:
            self._waiting.extend(each for each in work if isinstance(each, Job))
            self._glances.extend(each for each in work if isinstance(each, Glance))
            self._changed.notify()

    def drop(self) -> tuple[Job, ...]:
        """Forget what has not been begun: the jobs. Of a batch being judged the verdict being reached is the last, and
        what is left of it is delivered."""
        with self._changed:
            dropped = tuple(self._waiting)
            self._waiting.clear()
            self._glances.clear()
            self._dropped = True
            return dropped

    def close(self) -> None:
        """Finish the verdict being reached and end."""
        with self._changed:
            self._waiting.clear()
            self._glances.clear()
            self._ending = True
            self._changed.notify()
        self._thread.join()

    def _batch(self) -> list[Job] | Glance | None:
        """What was handed in: a profile, which is quick and for which a question waits; else candidates. None at the
        end."""
        with self._changed:
            while not self._waiting and not self._glances and not self._ending:
                self._changed.wait()
            self._dropped = False
            if self._glances:
                return self._glances.pop(0)
            batch = turn(self._waiting)
            self._waiting = [job for job in self._waiting if job not in batch]
            return batch or None

    def _run(self) -> None:
        try:
            while (work := self._batch()) is not None and not self._ending:
                if isinstance(work, Glance):
                    assert self._look is not None, "nobody hands in what cannot be looked at"
                    self._deliver(Seen(work.trial, self._look(work.candidate, work.evaluation)))
                else:
                    self._judge(work)
        except BaseException as error:  # noqa: BLE001  (a thread's top frame: the run's own thread raises it)
            self._deliver(error)

    def _judge(self, batch: Sequence[Job]) -> None:
        left = dict(enumerate(batch))
        for position, evaluation in self._evaluate([job.candidate for job in batch], fresh=batch[0].again):
            self._deliver(Verdict(left.pop(position), evaluation))
            if self._ending or self._dropped:
                break
        assert not left or self._ending or self._dropped, "every candidate gets its verdict"
        if left and self._dropped:
            self._deliver(Left(tuple(left.values())))
