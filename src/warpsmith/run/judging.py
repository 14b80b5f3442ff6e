"""Verdicts in the background: one thread that owns the evaluator, fed with jobs while models are still thinking.

Whatever has been handed in by the time it is free is judged as one batch, so that compilers run side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from warpsmith.core.candidate import Candidate
from warpsmith.core.evaluation import Evaluation
from warpsmith.run.session import Job


class Evaluate(Protocol):
    """Judges candidates of the run's task; `fresh` ones even where a verdict is known."""

    def __call__(self, candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        """(position, verdict), as they come."""
        ...


class Judging:
    """The thread. `deliver` is called in it, with a job and its verdict, or with what went wrong."""

    def __init__(self, evaluate: Evaluate, deliver: Callable[[Job | None, Evaluation | BaseException], None]) -> None:
        self._evaluate = evaluate
        self._deliver = deliver
        self._waiting: list[Job] = []
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="judging", daemon=True)
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Hand in jobs; does not wait."""
        with self._changed:
            self._waiting.extend(jobs)
            self._changed.notify()

    def drop(self) -> int:
        """Forget what has not been begun; how many that were."""
        with self._changed:
            dropped = len(self._waiting)
            self._waiting.clear()
            return dropped

    def close(self) -> None:
        """Finish the verdict being reached and end."""
        with self._changed:
            self._waiting.clear()
            self._ending = True
            self._changed.notify()
        self._thread.join()

    def _batch(self) -> list[Job]:
        """What was handed in: those that stand to be the best first, since others are measured against it."""
        with self._changed:
            while not self._waiting and not self._ending:
                self._changed.wait()
            again = [job for job in self._waiting if job.again]
            batch = again or list(self._waiting)
            self._waiting = [job for job in self._waiting if job not in batch]
            return batch

    def _run(self) -> None:
        while batch := self._batch():
            left = dict(enumerate(batch))
            try:
                for position, evaluation in self._evaluate([job.candidate for job in batch], fresh=batch[0].again):
                    self._deliver(left.pop(position), evaluation)
                    if self._ending:
                        break
            except BaseException as error:  # noqa: BLE001  (a thread's top frame: the run's own thread raises it)
                self._deliver(None, error)
                return
            if self._ending:
                return
