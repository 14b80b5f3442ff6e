"""What every way of taking samples has in common.

A sample is one timed pair of candidate and baseline on the same sets of buffers. A sampler takes the two halves of a
sample; `measure` decides which data they get, how many samples there are, and what they mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from warpsmith.evaluator.judge.baselines import BaselineRunner
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import CallTimes, TimeCalls
from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import Objection
from warpsmith.model.settings import Settings

Pairs = list[tuple[float, float]]  # nanoseconds: baseline, candidate


@dataclass(frozen=True)
class RequestCost:
    """What an empty request costs by the judge's clock, in nanoseconds, before any code of the candidate is loaded."""

    typical_ns: float
    # On the CPU:
    deducted_ns: float = 0.0  # the cost of an undisturbed request
    per_set_ns: float = 0.0  # what every set in it adds
    unknown_ns: float = 0.0  # by how much the cost may differ from what is taken off
    main_cpu_ns: float = 0.0  # the least CPU time of the answering thread

    def of_sample(self, sets: int) -> float:
        """What is taken off the time of a sample on the CPU."""
        return self.deducted_ns + self.per_set_ns * sets


@dataclass
class Sampler(ABC):
    """Times one candidate and one baseline on one workload. Times are nanoseconds for all calls of a sample."""

    host: HostClient
    buffers: WorkloadBuffers
    runner: BaselineRunner
    settings: Settings
    limit_s: float  # for one call on each set
    cost: RequestCost

    checks_memory: ClassVar[bool] = False  # whether the candidate's process stays alive and could write anywhere

    @property
    @abstractmethod
    def mode(self) -> str:
        """The name of this way of timing in a result."""

    def calls(self) -> int:
        """How many sets a sample calls. With several sets some are left out: work for another call then shows."""
        count = len(self.buffers.sets)
        return count if count == 1 else count - max(1, count // 8)

    def before_new_data(self) -> None:  # noqa: B027  an optional step
        """Make the requests that must precede new data: the candidate could work ahead in any untimed request."""

    def after_written_state(self) -> None:  # noqa: B027
        """New values of the state that may be written are in the buffers; new weights and arguments are not."""

    @abstractmethod
    def time_candidate(self, called: Sequence[int]) -> int:
        """Time one call of the candidate on each of these sets."""

    def can_watch(self) -> bool:
        """Whether `watch_candidate` looks at calls while they are made."""
        return False

    def watch_candidate(self, called: Sequence[int]) -> int:
        """Make the same calls for a sample that does not count, and look at them while they are made, if possible."""
        return self.time_candidate(called)

    @abstractmethod
    def time_baseline(self, called: Sequence[int]) -> int:
        """Time one call of the baseline on each of these sets."""

    def discard_last(self) -> None:  # noqa: B027
        """Forget the last pair: it does not count."""

    def last_disturbed(self) -> bool:
        """Whether other processes slowed the last sample of the candidate down by an unknown time."""
        return False

    def corrected_pairs(self, pairs: Pairs) -> Pairs:
        """The pairs that count, without what a request costs."""
        return pairs

    def unknown_ns(self) -> float:
        """How much of one sample of the candidate may be the cost of the request and not of its calls."""
        return 0.0

    def objection(self) -> Objection | None:
        """What the guards object to in the times that the candidate's process reported."""
        return None

    def ask(self, request: TimeCalls) -> CallTimes:
        """Have the host time calls."""
        reply = self.host.ask(request, CallTimes, self.limit_s)
        check_returned(reply.returned, reply.device_text if reply.device_error else "")
        return reply

    def set_numbers(self, called: Sequence[int]) -> tuple[int, ...]:
        """The numbers by which the host knows these sets."""
        return tuple(self.buffers.set_numbers[index] for index in called)


def check_returned(returned: int, device_text: str = "") -> None:
    """Raise CandidateFailed if a timed call reported a failure."""
    if returned or device_text:
        said = device_text or f"the entry point returned {returned}"
        raise CandidateFailed(Status.LAUNCH_FAILED, f"a timed call failed: {said}.")
