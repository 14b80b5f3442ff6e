"""How a sample is taken on a GPU, and whose clock counts.

`ReplaySampler`: a replayer makes the candidate's recorded calls, and its clock is trusted. `OutsideSampler`: a
candidate that cannot be replayed is asked for one call at a time, and the judge's own clock around the request counts;
the baseline's time then includes the same round trip.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from warpsmith.evaluator.candidate.python_module import copy_tensor
from warpsmith.evaluator.guards import first_objection
from warpsmith.evaluator.judge.baselines import wait_for_device
from warpsmith.evaluator.judge.timing.sampler import Sampler
from warpsmith.evaluator.judge.timing.statistics import median
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import TimeCalls
from warpsmith.model.evidence import ClaimedTime, Objection

_CLOCK_SLACK_NS = 2_000_000  # to hand a GPU from one process to another
_CLOCK_SLACK_SHARE = 0.5
_MOST_CALLS = 8  # of a sample that is timed from outside: each call is a request
_COPY_REPEATS = 8  # the fastest counts, so that load does not widen the bound
_COLD = 2.0  # a copy to uncached memory, relative to a copy in the cache
_PER_TENSOR_NS = 30_000  # to check one tensor and to start its copy, in Python


@dataclass
class ReplaySampler(Sampler):
    """A trusted process makes the candidate's calls; both sides are chains of graphs, built anew for each sample."""

    # checks_memory stays False: no host code of the candidate is alive, and inputs are mapped read-only

    @property
    def mode(self) -> str:
        return "replayed"

    def time_candidate(self, called: Sequence[int]) -> int:
        return max(1, self.ask(TimeCalls(self.set_numbers(called))).elapsed_ns)

    def time_baseline(self, called: Sequence[int]) -> int:
        self.ask(TimeCalls(()))  # the candidate finds the device just used by another process: so must the baseline
        return max(1, self.runner.sample(True, called))


@dataclass
class OutsideSampler(Sampler):
    """Makes one call per request, timed by the judge's clock until the device is idle again.

    The candidate's process cannot know which set comes next, and its reported times are not used. The baseline's time
    is PyTorch's best by the device's clock, plus the same round trip: an empty request to the same process, and copying
    the results if the candidate's are copied. The launch and the wait are part of the candidate's time only. So
    differences look smaller than they are, and no candidate gains by this way of measuring.
    """

    copies_results: bool  # whether the baseline's results are copied, as those of a candidate that returns tensors

    checks_memory: ClassVar[bool] = True

    def __post_init__(self) -> None:
        outputs = self.buffers.sets[0].outputs
        self._device = outputs[0].device
        self._copies = [torch.empty_like(output) for output in outputs] if self.copies_results else []
        self._copy_ns = _most_copy_ns(self.buffers) / len(self.buffers.sets) if self.host.returns_tensors else 0.0
        self._round_trips_ns = 0
        self._claims_ns: list[float] = []
        self._excess_ns = math.inf  # the least by which the judge's clock exceeded a claim

    @property
    def mode(self) -> str:
        return "outside"

    def calls(self) -> int:
        return min(super().calls(), _MOST_CALLS)

    def before_new_data(self) -> None:
        self._round_trips_ns = self._time_round_trips(self.calls())

    def time_candidate(self, called: Sequence[int]) -> int:
        total_ns = 0
        for number in self.set_numbers(called):
            claimed_ns, taken_ns = self._request((number,))
            self._claims_ns.append(claimed_ns)
            self._excess_ns = min(self._excess_ns, taken_ns - claimed_ns)
            total_ns += taken_ns
        return max(1, total_ns)

    def time_baseline(self, called: Sequence[int]) -> int:
        return max(1, self._round_trips_ns + self._work_ns(called))

    def time_baseline_alone(self, called: Sequence[int]) -> int:
        """The baseline's time when the candidate's process has ended: with round trips to the replayer, or with the
        cost of requests before the candidate was loaded if the replayer has failed."""
        failed = self.host.failure is not None
        trips_ns = round(self.cost.typical_ns * len(called)) if failed else self._time_round_trips(len(called))
        return max(1, trips_ns + self._work_ns(called))

    def objection(self) -> Objection | None:
        """Object to claims far below the judge's clock.

        Claims are not used as times, so every doubt is decided for the candidate: only the smallest excess of the
        judge's clock over a claim counts.
        """
        if "clock" in self.settings.without:
            return None
        claimed_ns = median(self._claims_ns)
        allowed_ns = _CLOCK_SLACK_NS + _CLOCK_SLACK_SHARE * claimed_ns + self._copy_ns
        evidence = ClaimedTime(claimed_ns, self._excess_ns - self.cost.typical_ns, allowed_ns)
        return first_objection(evidence, self.settings.without)

    def _request(self, numbers: tuple[int, ...]) -> tuple[int, int]:
        """Calls on these sets with cold caches: the time that the host reports, and the time by the judge's clock."""
        self.runner.flush()
        torch.cuda.synchronize(self._device)
        start_ns = time.perf_counter_ns()
        reply = self.ask(TimeCalls(numbers, flush=False))
        wait_for_device(self._device)
        return reply.elapsed_ns, time.perf_counter_ns() - start_ns

    def _time_round_trips(self, count: int) -> int:
        return sum(self._request(())[1] for _ in range(count))

    def _work_ns(self, called: Sequence[int]) -> int:
        """The device time of the baseline's calls and of copying their results."""
        taken_ns = self.runner.sample(True, called)
        if not self._copies:
            return taken_ns
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for outputs in self.runner.outputs():
            for result, copy in zip(outputs, self._copies, strict=True):
                copy.copy_(result)
        stop.record()
        torch.cuda.synchronize(self._device)
        return taken_ns + round(float(start.elapsed_time(stop)) * 1e6)


def _most_copy_ns(buffers: WorkloadBuffers) -> float:
    """An upper bound of the cost of copying the outputs of all sets, as a host does for a candidate that returns
    tensors."""
    tensors = [output for group in buffers.sets for output in group.outputs]
    copies = [torch.empty_like(output) for output in buffers.sets[0].outputs] * len(buffers.sets)
    least_ns = math.inf
    for _ in range(_COPY_REPEATS):
        start_ns = time.perf_counter_ns()
        for tensor, copy in zip(tensors, copies, strict=True):
            copy_tensor(tensor, copy)
        torch.cuda.synchronize()
        least_ns = min(least_ns, time.perf_counter_ns() - start_ns)
    return _COLD * least_ns + _PER_TENSOR_NS * len(tensors)
