"""How a sample is taken on the CPU: the judge's clock around one request decides.

The candidate's process is stopped except between a request and its reply. The time of a sample is the time that passed
on the judge's clock between the two, less the cost of an empty request to the same process, measured before any code
of the candidate was loaded, and less the least cost of copying results. What the candidate's process says about time
decides nothing. So that the cost of a request matters little, the sets of a short task are so many that their calls
take milliseconds, the request consists of integers (`NumbersMessage`), and threads are woken by an earlier request.
What is not known about the cost of a request widens the interval of the result.

Where one thread does all the work, the time for which other processes kept that thread off the CPUs is not counted:
the kernel knows it (`process_usage`). Where several threads work, a sample in which one of them waited for a CPU is
taken again, like a sample of the baseline. A candidate gains nothing by letting its threads wait for each other: every
sample has new data, so no work can be moved from a sample that counts to one that does not. Where both sides may use
fewer threads than there are CPUs, a sample takes at least the CPU time of all threads ÷ the number of threads.

The time that the process reports is compared with the CPU time that it used, which it cannot forge either: a process
that reports less than it used has a forged clock and is rejected, although the forgery gains nothing.

- The CPU time of the answering thread (`process_usage`), to which other work on the machine adds next to nothing. A
  report must be at least that, less what the thread does outside its clock, which is about the same in every request.
  The clock is forged if the difference cannot be explained in three quarters of the samples.
- The CPU time of all threads, for work that is handed to another thread. OpenMP threads also spin without work, above
  all on a busy machine: the clock is forged only if this figure is too large in every sample.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from warpsmith.evaluator.candidate.python_module import copy_tensor
from warpsmith.evaluator.guards import first_objection
from warpsmith.evaluator.judge.baselines import CPU_SETTLE_S, UNDISTURBED_SHARE
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.timing.cpu_affinity import CpuAffinity
from warpsmith.evaluator.judge.timing.process_usage import CpuUsage, ProcessUsage
from warpsmith.evaluator.judge.timing.sampler import Pairs, RequestCost, Sampler, check_returned
from warpsmith.evaluator.judge.timing.statistics import lower_quartile, median
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import Acknowledged, CallSets, CallsMade, FlushCaches, WakeThreads
from warpsmith.model.evidence import ClaimedTime, Objection

_WAKE_MS = 10
_COST_SAMPLES = 6
_COST_SAMPLES_AGAIN = 2  # for every further host
_COSTS_KEPT = 32
_WORTH_REPEATING_NS = 2_000_000  # shorter samples that are disturbed are outliers: the median leaves them out
_MAIN_SLACK_NS = 3_000_000  # waking threads, where the last of them waits for a CPU; releasing results
_SLACK_NS = 2_000_000  # for threads that spin
_SLACK_SHARE = 0.15
_LOOK_EVERY_S = 0.0003  # of CPU time: a sample of short calls takes milliseconds
_MOST_LOOKS = 8  # in one request
_LOOKING_S = 2.0
_COLD = 2.0  # the cost of a copy to uncached memory and of releasing the results, relative to a copy in the cache
_PER_TENSOR_NS = 10_000  # to check one tensor and to start its copy, in Python


class RequestCosts:
    """Measures what a request costs in which no code of a candidate runs, before any is loaded.

    The cost belongs to the machine, not to the candidate, and is collected from host to host. What is taken off a
    measured time is the lower quartile: the cost of an undisturbed request. It grows with the number of sets.
    """

    def __init__(self, most_sets: int) -> None:
        self._most_sets = most_sets
        self._taken: dict[int, deque[int]] = {sets: deque(maxlen=_COSTS_KEPT) for sets in (0, most_sets)}

    def measure(self, host: HostClient, flush: Callable[[], None], limit_s: float) -> RequestCost:
        """Make requests to this host as samples make them, with cold caches."""
        usage, affinity, used = ProcessUsage(host.pid), CpuAffinity(), list[int]()
        for sets, taken in self._taken.items():
            wanted = _COST_SAMPLES_AGAIN if taken else _COST_SAMPLES
            for number in range(-1, wanted):
                flush()
                time.sleep(CPU_SETTLE_S)
                before = usage.read_stopped()
                with affinity.judge_moved_away():
                    host.ask(CallSets(tuple(range(-sets, 0))), CallsMade, limit_s)
                after = usage.read_stopped()
                if number >= 0:  # the first request touches memory for the first time
                    taken.append(after.undisturbed_since(before, host.round_trip_ns))
                    used.append(after.main_thread_since(before))
        empty, full = self._taken.values()
        empty_ns = lower_quartile(empty)
        return RequestCost(
            typical_ns=median(empty),
            deducted_ns=empty_ns,
            per_set_ns=max(0.0, lower_quartile(full) - empty_ns) / self._most_sets,
            unknown_ns=empty_ns - min(empty),
            main_cpu_ns=min(used),
        )


@dataclass(frozen=True)
class _CandidateTime:
    """The candidate's half of one sample, in nanoseconds."""

    claimed_ns: int
    taken_ns: int  # by the judge's clock, undisturbed
    main_cpu_ns: int  # CPU time of the thread that answers
    shortest_ns: float  # the shortest time in which all threads can have used their CPU time
    disturbed: bool  # a thread was ready to run and had no CPU for a part of the time, and that part is not known


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

    threads: int = 0  # that either side may use; 0: as many as there are CPUs

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
        # The host's threads have slept; it wakes them, as the baseline does. They are stopped awake.
        with self._affinity.pin_process(self.host.pid):
            self.host.ask(WakeThreads(_WAKE_MS), Acknowledged, self.limit_s)

    def after_written_state(self) -> None:
        if self.host.copies_state:
            self.host.ask(FlushCaches(), Acknowledged, self.limit_s)

    def _begin(self) -> CpuUsage:
        """What precedes each request for calls. It is the same whether they count or not: a candidate that saw a
        difference, such as where its threads are pinned, could be careful only when it is watched."""
        self.runner.flush()  # by the judge: the candidate's process must not run between new data and the clock
        time.sleep(CPU_SETTLE_S)
        before = self._usage.read_stopped()
        self._affinity.spread_threads(self.host.pid, before.threads_ns)
        return before

    def time_candidate(self, called: Sequence[int]) -> int:
        before = self._begin()
        with self._affinity.judge_moved_away():
            reply = self.host.ask(CallSets(self.set_numbers(called)), CallsMade, self.limit_s)
        check_returned(reply.returned)
        after = self._usage.read_stopped()
        taken_ns = after.undisturbed_since(before, self.host.round_trip_ns)
        if 0 < self.threads < self._processors:  # more threads gain nothing
            taken_ns = max(taken_ns, (after.total_ns - before.total_ns) // self.threads)
        main_cpu_ns, shortest_ns = after.main_thread_since(before), after.shortest_since(before, self._processors)
        waited_ns = after.waited_since(before) if taken_ns >= self.host.round_trip_ns else 0
        disturbed = taken_ns > _WORTH_REPEATING_NS and waited_ns > UNDISTURBED_SHARE * taken_ns
        self._times.append(_CandidateTime(reply.elapsed_ns, taken_ns, main_cpu_ns, shortest_ns, disturbed))
        return max(1, taken_ns)

    def can_watch(self) -> bool:
        return self.calls() > 1 and not self.host.returns_tensors and "memory" not in self.settings.without

    def watch_candidate(self, called: Sequence[int]) -> int:
        """See `Sampler`. No call may do the work of another: at a moment that the candidate does not know, the calls
        have been made up to one of them, and nothing of those behind it."""
        if not self.can_watch():
            return self.time_candidate(called)
        undone: set[tuple[int, int]] = set()
        self._begin()
        with self._affinity.judge_moved_away():
            reply = self.host.ask_watched(
                CallSets(self.set_numbers(called)),
                CallsMade,
                self.limit_s + _LOOKING_S,
                lambda: undone.update(self.buffers.undone_before_others(called)),
                _LOOK_EVERY_S,
                _MOST_LOOKS,
            )
        check_returned(reply.returned)
        self.buffers.check_order(undone)
        self._times.append(_CandidateTime(reply.elapsed_ns, reply.elapsed_ns, 0, 0.0, disturbed=False))
        return max(1, reply.elapsed_ns)

    def time_baseline(self, called: Sequence[int]) -> int:
        taken_ns = self.runner.sample(False, called)
        if self._copy_cost is not None:
            self._copy_cost.measure(self.runner.outputs())
        return max(1, taken_ns)

    def discard_last(self) -> None:
        self._times.pop()

    def last_disturbed(self) -> bool:
        return self._times[-1].disturbed

    def corrected_pairs(self, pairs: Pairs) -> Pairs:
        """The pairs, without the cost of a request and of copying results. A report above that is believed."""
        deducted_ns = self.cost.of_sample(self.calls()) + (
            self._copy_cost.least_ns if self._copy_cost is not None else 0.0
        )
        return [
            (baseline_ns, max(1.0, taken_ns - deducted_ns, min(taken_ns, sample.claimed_ns)))
            for (baseline_ns, taken_ns), sample in zip(pairs, self._times, strict=True)
        ]

    def unknown_ns(self) -> float:
        return self.cost.unknown_ns

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
        allowed_ns = self.cost.typical_ns + _SLACK_NS + shared_ns
        return first_objection(ClaimedTime(claimed_ns, any_ns, allowed_ns, processor=True), without)
