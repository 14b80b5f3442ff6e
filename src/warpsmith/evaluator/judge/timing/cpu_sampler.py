"""How a sample is taken on the CPU, and how much of a candidate's reported time is believed.

The candidate's process reports how long its calls took: only this process knows when they began and ended. The process
is stopped except between a request and its reply, so three figures that it cannot forge bound the report:

- The judge's clock around the request. Less the cost of an empty request, and less the least cost of copying results,
  this is an upper bound of the time. A report below the smallest of these bounds counts as that bound. A report far
  below it counts as the judge's clock for that very sample, so that on a busy machine, where samples differ, a forger
  does not get the best of them against the baseline's usual. This figure never proves a forged clock, because other
  work on the machine adds to it.
- The CPU time of the answering thread (`process_usage`), to which other work adds next to nothing. A report must be at
  least that, less what the thread does outside its clock, which is about the same in every request unless the thread
  waits for another to wake up. The clock is forged if the difference cannot be explained in three quarters of the
  samples.
- The CPU time of all threads, for work that is handed to another thread. OpenMP threads also spin without work, above
  all on a busy machine: the clock is forged only if this figure is too large in every sample.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from warpsmith.evaluator.candidate.python_module import copy_tensor
from warpsmith.evaluator.guards import first_objection
from warpsmith.evaluator.judge.baselines import CPU_SETTLE_S
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.timing.cpu_affinity import CpuAffinity
from warpsmith.evaluator.judge.timing.process_usage import ProcessUsage
from warpsmith.evaluator.judge.timing.sampler import Pairs, RequestCost, Sampler
from warpsmith.evaluator.judge.timing.statistics import lower_quartile, median
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import Acknowledged, CallTimes, FlushCaches, TimeCalls
from warpsmith.model.evidence import ClaimedTime, Objection

_WAKE_BRIEFLY_MS = 1
_WAKE_MS = 10
_COST_SAMPLES = 4
_MAIN_SLACK_NS = 3_000_000  # waking threads, where the last of them waits for a CPU; releasing results
_SLACK_NS = 2_000_000  # for threads that spin
_SLACK_SHARE = 0.15
_WAKING_SLACK = 3.0  # times what waking threads took before the candidate was loaded: a busy machine gets busier
_GROSS_SHARE = 1.5  # load can make a short report look false, but not by this factor and the slack in every sample
_COLD = 2.0  # the cost of a copy to uncached memory and of releasing the results, relative to a copy in the cache
_PER_TENSOR_NS = 10_000  # to check one tensor and to start its copy, in Python


def with_waking_cost(cost: RequestCost, host: HostClient, limit_s: float) -> RequestCost:
    """Add the cost of a request that wakes threads: milliseconds by the judge's clock on a busy machine. To be called
    before any code of the candidate is loaded."""
    usage, affinity, times, used = ProcessUsage(host.pid), CpuAffinity(), [cost.typical_ns], []
    for _ in range(_COST_SAMPLES):
        before = usage.read_stopped()
        with affinity.judge_moved_away():
            host.ask(TimeCalls((), wake_ms=_WAKE_BRIEFLY_MS), CallTimes, limit_s)
        times.append(host.round_trip_ns)
        used.append(usage.read_stopped().main_thread_since(before))
        time.sleep(CPU_SETTLE_S)
    return replace(cost, main_cpu_ns=min(used), waking_ns=max(times) - cost.typical_ns)


@dataclass(frozen=True)
class _CandidateTime:
    """The candidate's half of one sample, in nanoseconds."""

    claimed_ns: int
    round_trip_ns: int  # by the judge's clock
    main_cpu_ns: int  # CPU time of the thread that answers
    shortest_ns: float  # the shortest time in which all threads can have used their CPU time


class CopyCost:
    """The cost of copying the results of one sample into the judge's buffers.

    A candidate that returns tensors has them copied after its clock has stopped and before it replies. The judge makes
    the same copies after each sample of the baseline: its results are as warm as a candidate's, and the targets have
    been pushed out of the caches like the judge's buffers. Only the least cost is taken off a time, because work that
    is put off until the copy hides in whatever is taken off. The upper bound says what cannot be explained.
    """

    def __init__(self, buffers: WorkloadBuffers, calls: int) -> None:
        self._targets = [torch.zeros_like(output) for group in buffers.sets[:calls] for output in group.outputs]
        self._least_ns = math.inf

    def measure(self, results: Iterable[Sequence[torch.Tensor]]) -> None:
        """Copy the results of one sample."""
        tensors = [tensor.contiguous() for outputs in results for tensor in outputs]
        start_ns = time.perf_counter_ns()
        for tensor, target in zip(tensors, self._targets, strict=True):
            copy_tensor(tensor, target)
        self._least_ns = min(self._least_ns, time.perf_counter_ns() - start_ns)

    @property
    def least_ns(self) -> float:
        """The least that a copy costs; 0 before the first measurement."""
        return self._least_ns if math.isfinite(self._least_ns) else 0.0

    @property
    def most_ns(self) -> float:
        """The most that a copy costs."""
        return _COLD * self.least_ns + _PER_TENSOR_NS * len(self._targets)


@dataclass
class CpuSampler(Sampler):
    """Has each process, the host and the judge, call all sets of a sample in one go."""

    # checks_memory stays False: the host is stopped whenever it is not asked, and its inputs are mapped read-only

    def __post_init__(self) -> None:
        self._usage = ProcessUsage(self.host.pid)
        self._affinity = CpuAffinity()
        self._processors = len(os.sched_getaffinity(0))
        self._times: list[_CandidateTime] = []  # one for each pair that counts
        self._copy_cost = CopyCost(self.buffers, self.calls()) if self.host.returns_tensors else None

    @property
    def mode(self) -> str:
        return "batched" if self.calls() > 1 else "single"

    def before_new_data(self) -> None:
        # The host's threads have slept; it wakes them, as the baseline does. Waking can take long, and whatever the
        # judge's clock shows beyond a report leaves room for a forged one: so the long part is a request of its own.
        with self._affinity.pin_process(self.host.pid):
            self.ask(TimeCalls((), wake_ms=_WAKE_MS))

    def after_new_state(self) -> None:
        if self.host.copies_state:
            self.host.ask(FlushCaches(), Acknowledged, self.limit_s)

    def time_candidate(self, called: Sequence[int]) -> int:
        self.runner.flush()  # by the judge: the candidate's process must not run between new data and the clock
        time.sleep(CPU_SETTLE_S)
        before = self._usage.read_stopped()
        # A Python host's request takes longer anyway, which leaves more room for a forged clock: no waking inside.
        wake_ms = 0 if self.host.copies_state else _WAKE_BRIEFLY_MS
        self._affinity.spread_threads(self.host.pid, before.threads_ns)
        with self._affinity.judge_moved_away():
            reply = self.ask(TimeCalls(self.set_numbers(called), wake_ms=wake_ms))
        round_trip_ns, after = self.host.round_trip_ns, self._usage.read_stopped()
        main_cpu_ns, shortest_ns = after.main_thread_since(before), after.shortest_since(before, self._processors)
        self._times.append(_CandidateTime(reply.elapsed_ns, round_trip_ns, main_cpu_ns, shortest_ns))
        return max(1, reply.elapsed_ns)

    def time_baseline(self, called: Sequence[int]) -> int:
        taken_ns = self.runner.sample(False, called)
        if self._copy_cost is not None:
            self._copy_cost.measure(self.runner.outputs())
        return max(1, taken_ns)

    def discard_last(self) -> None:
        self._times.pop()

    def credible_pairs(self, pairs: Pairs) -> Pairs:
        """The pairs, with no candidate's time below the fastest sample by the judge's clock."""
        if "clock" in self.settings.without:
            return pairs
        explained_ns = self.cost.deducted_ns + (self._copy_cost.least_ns if self._copy_cost is not None else 0.0)
        limits_ns = [sample.round_trip_ns - explained_ns for sample in self._times]
        least_ns = min(limits_ns)
        return [
            (baseline_ns, limit_ns if _is_far_below(claimed_ns, least_ns) else max(claimed_ns, least_ns))
            for (baseline_ns, claimed_ns), limit_ns in zip(pairs, limits_ns, strict=True)
        ]

    def objection(self) -> Objection | None:
        without = self.settings.without
        if "clock" in without:
            return None
        claimed_ns = median([sample.claimed_ns for sample in self._times])
        shared_ns = _SLACK_SHARE * claimed_ns + (self._copy_cost.most_ns if self._copy_cost is not None else 0.0)
        main_ns = lower_quartile([sample.main_cpu_ns - sample.claimed_ns for sample in self._times])
        allowed_ns = self.cost.main_cpu_ns + _MAIN_SLACK_NS + shared_ns
        found = first_objection(ClaimedTime(claimed_ns, main_ns, allowed_ns, processor=True), without)
        if found is not None:
            return found
        any_ns = min(sample.shortest_ns - sample.claimed_ns for sample in self._times)
        allowed_ns = self.cost.typical_ns + _WAKING_SLACK * self.cost.waking_ns + _SLACK_NS + shared_ns
        return first_objection(ClaimedTime(claimed_ns, any_ns, allowed_ns, processor=True), without)


def _is_far_below(claimed_ns: float, least_ns: float) -> bool:
    """Whether a report is so far below the possible that nothing of it can be used."""
    return claimed_ns * _GROSS_SHARE < least_ns and claimed_ns + _SLACK_NS < least_ns
