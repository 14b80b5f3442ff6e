"""Times a candidate that gives right results: samples, statistics, and the result of a workload.

For each sample new inputs are drawn for every set, the outputs are poisoned, the cache is flushed before either side,
and candidate and baseline run in alternating order (A B, B A, ...). Every timed result of the candidate is compared
with the baseline's. How the two halves of a sample are timed, and whose clock counts, is decided by a `Sampler`.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path

import torch

from warpsmith.evaluator.judge.baselines import BaselineRunner, wait_for_device
from warpsmith.evaluator.judge.check import Checker, CheckResult, check_late_writes
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.records import CandidateFailed, check_guards
from warpsmith.evaluator.judge.task_context import TaskContext
from warpsmith.evaluator.judge.timing.cpu_sampler import CpuSampler, RequestCosts
from warpsmith.evaluator.judge.timing.gpu_sampler import OutsideSampler, ReplaySampler
from warpsmith.evaluator.judge.timing.sampler import Pairs, RequestCost, Sampler
from warpsmith.evaluator.judge.timing.statistics import median, narrow_enough, ratio_interval
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import MOST_CALLS, CallTimes, TimeCalls
from warpsmith.hardware.peaks import remeasure_peaks
from warpsmith.hardware.roofline import floor_ms, reject_below_ms
from warpsmith.model.evaluation import Baseline, Interval, Status, WorkloadResult
from warpsmith.model.evidence import MeasuredSpeed
from warpsmith.model.task import Workload
from warpsmith.tasks.variants import OWN

_WARM_UP_PAIRS = 2
_UNUSUAL_S = 0.2  # per measurement for pairs with unusual inputs, if that is enough for the fewest
_WATCHED = 3  # pairs in which the candidate is stopped, besides those of the warm-up
_LATER_UNUSUAL = 2  # pairs with unusual inputs among as many further pairs as are taken at least
_FEWEST_UNUSUAL = 3  # a cheat may have a reason to be careful in one of the calls
_COST_SAMPLES = 4
_ATTEMPTS = 3  # at a sample that other processes disturb
_BASELINE_SAMPLES = 5
_SLOWED_SHARE = 0.9  # a baseline that needs less than this share without the candidate was slowed down by it


class _Extra(Enum):
    """What a pair is for that does not count. No pair is both: a candidate that sees that it is stopped would know that
    it should be careful for the rest of the calls."""

    UNUSUAL = auto()
    WATCHED = auto()


@dataclass(frozen=True)
class _Timing:
    """A candidate's time on a workload, and the comparison with one baseline."""

    latency_ms: float
    mode: str  # "replayed", "outside", "batched" or "single"
    baseline: Baseline


class Timer:
    """Times candidates of one task."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._settings = context.settings
        self._on_cpu = context.device.type == "cpu"
        self._cpu_costs = RequestCosts(MOST_CALLS)

    def call_limit_s(self, workload: Workload) -> float:
        """How long one call may take."""
        return self._settings.limits.launch_s + 100 * self._context.baseline_s[workload.name]

    def measure_request_cost(self, host: HostClient) -> RequestCost:
        """Measure what an empty request costs, before any code of the candidate is loaded."""
        if self._on_cpu:
            return self._cpu_costs.measure(host, self._context.flush, self._settings.limits.start_s)
        costs = []
        for _ in range(1 + _COST_SAMPLES):
            self._context.flush()  # as before a sample; it also hands the GPU from process to process
            torch.cuda.synchronize()
            start_ns = time.perf_counter_ns()
            reply = host.ask(TimeCalls((), flush=False), CallTimes, self._settings.limits.start_s)
            wait_for_device(self._context.device)
            costs.append(time.perf_counter_ns() - start_ns - reply.elapsed_ns)
        return RequestCost(median(costs[1:]))  # the first request starts threads

    def measure(
        self, host: HostClient, buffers: WorkloadBuffers, checked: CheckResult, checker: Checker, cost: RequestCost
    ) -> WorkloadResult:
        """Time one workload against every baseline."""
        context, workload = self._context, buffers.workload
        work, precision = context.work[workload.name], context.task.precision
        runners = [context.baseline_runner(buffers, name) for name in self._settings.baselines]
        timings = [
            _PairedTiming(partial(self._sampler, host, buffers, runner, cost), checker).run()
            for runner in runners
            if runner is not None
        ]
        if not timings:
            raise RuntimeError("no baseline could be run")
        latency_ms = timings[0].latency_ms
        least_ms = reject_below_ms(work, context.peaks, precision)
        beaten = latency_ms < floor_ms(work, context.peaks, precision) and not context.peaks_questioned
        if latency_ms < least_ms or beaten:  # the machine may have been busy when the peaks were measured
            context.peaks_questioned = True
            with context.all_threads():
                context.peaks = remeasure_peaks(context.peaks, Path(context.config.cache), context.device)
            least_ms = reject_below_ms(work, context.peaks, precision)
        check_guards(MeasuredSpeed(workload.name, latency_ms, least_ms), self._settings.without)
        return WorkloadResult(
            workload=workload.name,
            axes=workload.axes,
            latency_ms=latency_ms,
            timing=timings[0].mode,
            baselines=tuple(t.baseline for t in timings),
            error=checked.error,
            error_limit=checked.limit,
            floor_ms=floor_ms(work, context.peaks, precision),
            bytes=work.read_bytes + work.written_bytes,
            flops=work.flops,
            checks=checked.checks,
            reference=checked.reference,
        )

    def measure_baselines_again(
        self,
        buffers: WorkloadBuffers,
        result: WorkloadResult,
        replayer: HostClient | None,
        cost: RequestCost,
        returned_tensors: bool,
    ) -> WorkloadResult:
        """Correct baselines that were slowed down: time them again, with `replayer` for the round trips, now that the
        candidate's process has ended and has left nothing on the device."""
        baselines = []
        for baseline in result.baselines:
            runner = self._context.baseline_runner(buffers, baseline.name)
            if runner is not None and replayer is not None:
                sampler = self._outside_sampler(replayer, buffers, runner, cost, returned_tensors)
                called = range(sampler.calls())
                times = [sampler.time_baseline_alone(called) / len(called) / 1e6 for _ in range(_BASELINE_SAMPLES)]
                baseline = _corrected(baseline, median(times))
            baselines.append(baseline)
        return replace(result, baselines=tuple(baselines))

    def _sampler(
        self, host: HostClient, buffers: WorkloadBuffers, runner: BaselineRunner, cost: RequestCost
    ) -> Sampler:
        if not self._on_cpu and not host.trusted:
            return self._outside_sampler(host, buffers, runner, cost, host.returns_tensors)
        limit_s = self._sample_limit_s(buffers)
        if self._on_cpu:
            threads = self._context.config.threads
            return CpuSampler(host, buffers, runner, self._settings, limit_s, cost, threads=threads)
        return ReplaySampler(host, buffers, runner, self._settings, limit_s, cost)

    def _outside_sampler(
        self, host: HostClient, buffers: WorkloadBuffers, runner: BaselineRunner, cost: RequestCost, copies: bool
    ) -> OutsideSampler:
        limit_s = self._sample_limit_s(buffers)
        return OutsideSampler(host, buffers, runner, self._settings, limit_s, cost, copies_results=copies)

    def _sample_limit_s(self, buffers: WorkloadBuffers) -> float:
        return self.call_limit_s(buffers.workload) * len(buffers.sets) + 1.0


def _corrected(baseline: Baseline, alone_ms: float) -> Baseline:
    """A baseline with its time without the candidate, if that is clearly shorter."""
    share = alone_ms / baseline.latency_ms
    if share >= _SLOWED_SHARE:
        return baseline
    interval = baseline.interval and Interval(baseline.interval.low * share, baseline.interval.high * share)
    return replace(baseline, latency_ms=alone_ms, speedup=baseline.speedup * share, interval=interval)


class _PairedTiming:
    """Takes samples of one candidate and one baseline until their ratio is known."""

    def __init__(self, new_sampler: Callable[[], Sampler], checker: Checker) -> None:
        self._new_sampler = new_sampler  # each measurement has its own
        self._sampler = new_sampler()
        self._checker = checker
        self._buffers = self._sampler.buffers
        self._settings = self._sampler.settings
        self._rng = random.SystemRandom()  # a candidate cannot predict the inputs
        self._indices = tuple(range(len(self._buffers.sets)))

    def run(self) -> _Timing:
        """Sample pairs until the interval of the ratio is narrow enough or the budget is spent."""
        pairs = self._sample()
        if self._sampler.objection() is not None:
            # Other work may have begun on the machine: measure once more before rejecting.
            self._sampler = self._new_sampler()
            pairs = self._sample()
            found = self._sampler.objection()
            if found is not None:
                raise CandidateFailed(found.status, found.reason)
        pairs, calls = self._sampler.corrected_pairs(pairs), self._sampler.calls()
        speedup, interval = ratio_interval(pairs)
        unknown = self._sampler.unknown_ns() / median([candidate_ns for _, candidate_ns in pairs])
        interval = Interval(interval.low / (1 + unknown), interval.high * (1 + unknown))
        baseline_ms, latency_ms = (median(times) / calls / 1e6 for times in zip(*pairs, strict=True))
        name = self._sampler.runner.name
        return _Timing(latency_ms, self._sampler.mode, Baseline(name, baseline_ms, speedup, interval, len(pairs)))

    def _sample(self) -> Pairs:
        settings = self._settings
        pairs: Pairs = []
        for _ in range(_WARM_UP_PAIRS):
            start = time.monotonic()
            self._extra_pair(0, _Extra.WATCHED)
        wanted = self._unusual_pairs(time.monotonic() - start)
        start = time.monotonic()
        while len(pairs) < settings.max_samples:
            if not pairs:  # the last unusual one comes after all pairs that count
                extra = self._extra_pairs(0, wanted - 1, _WATCHED if self._sampler.can_watch() else 0)
            elif len(pairs) % settings.min_samples == 0:
                extra = self._extra_pairs(len(pairs), _LATER_UNUSUAL, 0)
            for kind in extra[len(pairs)]:
                self._extra_pair(len(pairs), kind)
            pairs.append(self._undisturbed_pair(len(pairs) % 2 == 0))
            if len(pairs) >= settings.min_samples:
                _, interval = ratio_interval(self._sampler.corrected_pairs(pairs))
                spent_s = time.monotonic() - start
                if narrow_enough(interval, settings.target_width) or spent_s > settings.timing_budget_s:
                    break
        self._extra_pair(len(pairs), _Extra.UNUSUAL)
        return pairs

    def _unusual_pairs(self, pair_s: float) -> int:
        """How many pairs with unusual inputs are taken among the fewest that count."""
        calls = self._checker.unusual_calls(self._buffers)
        wanted = max(_FEWEST_UNUSUAL, math.ceil(calls / self._sampler.calls()))
        most = min(max(_FEWEST_UNUSUAL, int(_UNUSUAL_S / pair_s)), self._settings.min_samples)
        return min(wanted, most)

    def _extra_pairs(self, first: int, unusual: int, watched: int) -> defaultdict[int, list[_Extra]]:
        """Which pairs that do not count are taken before each of the next pairs. A candidate cannot tell which these
        are: there may be several in a row, and the last one is not known as such."""
        found = defaultdict[int, list[_Extra]](list)
        for kind in self._rng.sample([_Extra.UNUSUAL, _Extra.WATCHED], unusual + watched, counts=[unusual, watched]):
            found[first + self._rng.randrange(self._settings.min_samples)].append(kind)
        return found

    def _extra_pair(self, number: int, kind: _Extra) -> None:
        """A pair that does not count, in the order in which the next one would be taken."""
        self._pair(number % 2 == 0, unusual=kind is _Extra.UNUSUAL, watched=kind is _Extra.WATCHED)
        self._sampler.discard_last()

    def _undisturbed_pair(self, candidate_first: bool) -> tuple[float, float]:
        """A pair in which no other process slowed the candidate down, if one can be had in a few attempts."""
        pair = self._pair(candidate_first)
        for _ in range(_ATTEMPTS - 1):
            if not self._sampler.last_disturbed():
                break
            self._sampler.discard_last()
            pair = self._pair(candidate_first)
        return pair

    def _pair(self, candidate_first: bool, *, unusual: bool = False, watched: bool = False) -> tuple[float, float]:
        """The baseline's time and the candidate's on new data; raises CandidateFailed for a wrong result.

        A watched pair does not count: the candidate is stopped in the middle of it."""
        buffers, sampler = self._buffers, self._sampler
        self._check_time()
        sampler.host.stage = f"being timed on workload {buffers.workload.name!r}"
        # Some sets are left out, and the order changes: work done for another call than the present one shows.
        called = self._rng.sample(self._indices, sampler.calls())
        variants = self._checker.choose_unusual(buffers, called) if unusual else {}
        self._write_new_data(variants)
        buffers.poison(self._indices)
        self._checker.wipe_workspace()
        checksum = buffers.inputs_checksum() if sampler.checks_memory else None
        buffers.synchronize()
        time_candidate = sampler.watch_candidate if watched else sampler.time_candidate
        if candidate_first:
            candidate_ns = time_candidate(called)
            snapshot = buffers.snapshot(called) if sampler.checks_memory else None
            baseline_ns = sampler.time_baseline(called)
            if snapshot is not None:
                buffers.check_unchanged(called, snapshot)
        else:
            baseline_ns = sampler.time_baseline(called)
            candidate_ns = time_candidate(called)
        buffers.check_memory(self._indices, checksum)
        buffers.check_untouched([index for index in self._indices if index not in called])
        try:
            outputs = dict(zip(called, sampler.runner.outputs(), strict=True))
            self._checker.check_timed(buffers, [i for i in called if i not in variants], outputs)
            self._checker.check_unusual(buffers, variants)
        except CandidateFailed:
            check_late_writes(sampler.host, buffers, called)
            raise
        return baseline_ns, candidate_ns

    def _write_new_data(self, variants: Mapping[int, str]) -> None:
        """Write new data to all sets, to some of them other variants than the task's own.

        The host copies state that it may write to before any new weight or argument is in the buffers, and all other
        requests come before any new data: a candidate could work ahead in a request that no clock covers."""
        buffers = self._buffers
        self._sampler.before_new_data()
        if buffers.written_state:
            for index in self._indices:
                buffers.shift_state(index, buffers.written_state, self._rng)
            self._sampler.after_written_state()
        for index in self._indices:
            buffers.shift_state(index, buffers.weights, self._rng)
            buffers.draw_arguments(index, self._rng, variants.get(index, OWN))

    def _check_time(self) -> None:
        """Fail a candidate whose calls are too slow to be timed; the judge's own work does not count."""
        limit_s = self._settings.limits.total_s
        if self._sampler.host.waited_s > limit_s:
            raise CandidateFailed(
                Status.TIMED_OUT,
                f"right, but far too slow to be timed: its calls took longer than {limit_s:g} s in all.",
            )
