"""What a proposer may ask of the run while it works on a brief: evaluations, profiles, earlier trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from warpsmith.model.brief import Reply, ShownCandidate


@dataclass(frozen=True)
class RunRoom:
    """What is left of a run's budget for the work on a brief."""

    trials: int  # evaluations on the way; the trial of the proposal itself is reserved
    seconds: float | None  # None: no limit


@dataclass(frozen=True)
class StepVerdict:
    """The outcome of an evaluation on the way."""

    shown: ShownCandidate
    best: bool  # whether the kernel is the best of the run now
    waiting: bool  # whether a second measurement still decides that
    known: bool  # whether the run knew the kernel already, so that no trial was spent


class RunTools(Protocol):
    """The run's side. Safe to call from any thread; a call waits for its answer.

    A UsageError says what is not possible and what to do instead.
    """

    def room(self, brief: int) -> RunRoom:
        """What is left for the work on a brief."""
        ...

    def evaluate(self, brief: int, reply: Reply) -> StepVerdict:
        """Evaluate the kernel in a reply: a trial of the run, judged and logged like any other."""
        ...

    def profile(self, trial: int) -> str:
        """Where the time of a valid trial goes."""
        ...

    def trials(self) -> tuple[ShownCandidate, ...]:
        """The latest trials of the run, without code."""
        ...

    def trial(self, number: int) -> ShownCandidate:
        """One trial with its code."""
        ...


@runtime_checkable
class WorkingProposer(Protocol):
    """A proposer that uses the run's tools."""

    def bind(self, tools: RunTools) -> None:
        """Use these tools from now on."""
        ...
