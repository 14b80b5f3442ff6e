"""Times a candidate that was found to be right: against every baseline, and once more against them alone.

Chooses the way in which that is done and says what came of it; how a pair of samples is taken is `ways` and `oncpu`,
how many there are and what counts is `contest`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from warpsmith.core.evaluation import Baseline, Interval, WorkloadResult
from warpsmith.core.guarding import Speed
from warpsmith.core.task import Workload
from warpsmith.evaluate.judging.baselines import CPU_SETTLE_S, Side, take_back
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.check import Checker, Measured
from warpsmith.evaluate.judging.contest import Contest, Timing
from warpsmith.evaluate.judging.delivery import delivery_ns
from warpsmith.evaluate.judging.findings import face
from warpsmith.evaluate.judging.oncpu import OnCpu, with_waking
from warpsmith.evaluate.judging.peer import Peer
from warpsmith.evaluate.judging.premises import Premises
from warpsmith.evaluate.judging.seats import Seats
from warpsmith.evaluate.judging.statistics import median
from warpsmith.evaluate.judging.ways import FromOutside, Idle, Parties, Replayed, Way
from warpsmith.evaluate.messages import Sample, Sampled
from warpsmith.hardware.peaks import improve
from warpsmith.hardware.roofline import floor_ms, reject_below_ms

_IDLE_SAMPLES = 4
_IDLE_NOISE_NS = 100_000
_SOBER_SAMPLES = 5
_SOBER = 0.9  # a baseline that needs less than this share once the candidate is gone was slowed down


class Timekeeper:
    """Times candidates of one task."""

    def __init__(self, premises: Premises) -> None:
        self._premises = premises
        self._settings = premises.settings
        self._least_idle_ns = math.inf
        self._aside = Seats().aside if premises.device.type == "cpu" else nullcontext  # as samples are taken

    def idle(self, peer: Peer) -> Idle:
        """What an empty request costs by our clock, before any code of the candidate is there.

        The least is kept from host to host: it is the machine's, not the candidate's. What is usual now may lie above
        it, if others use the machine; not by much, since that would be room for a forged clock.
        """
        costs = []
        for _ in range(1 + _IDLE_SAMPLES):
            self._premises.flush()  # as before a sample; a GPU changes hands with it
            if self._premises.device.type == "cuda":
                torch.cuda.synchronize()
            else:
                time.sleep(CPU_SETTLE_S)
            start_ns = time.perf_counter_ns()
            with self._aside():
                reply = peer.ask(Sample((), flush=False), Sampled, self._settings.limits.start_s)
            taken_ns = peer.outer_ns
            if self._premises.device.type == "cuda":
                take_back(self._premises.device)
                taken_ns = time.perf_counter_ns() - start_ns
            costs.append(taken_ns - reply.elapsed_ns)
        settled = costs[1:]  # the first starts threads
        self._least_idle_ns = min(self._least_idle_ns, *settled)
        usual_ns = median(settled)
        idle = Idle(usual_ns, min(usual_ns, self._least_idle_ns + _IDLE_NOISE_NS))
        limit_s = self._settings.limits.start_s
        return with_waking(idle, peer, limit_s) if self._premises.device.type == "cpu" else idle

    def call_limit_s(self, workload: Workload) -> float:
        """How long one call may take."""
        return self._settings.limits.launch_s + 100 * self._premises.baseline_s[workload.name]

    def measure(
        self,
        peer: Peer,
        bench: Bench,
        measured: Measured,
        checker: Checker,
        wipe: Callable[[], None],
        idle: Idle,
    ) -> WorkloadResult:
        """One workload against every baseline that there is."""
        workload, work = bench.workload, self._premises.work[bench.workload.name]
        timings: list[Timing] = []
        for name in self._settings.baselines:
            side = self._premises.side(bench, name)
            if side is None:
                continue
            parties = self._parties(peer, bench, side, idle)
            contest = Contest(
                parties,
                partial(self._way, parties),
                verify=lambda indices, outputs: checker.verify_timed(bench, indices, outputs),
                surprise=lambda indices: checker.surprise(bench, indices),
                variants=len(checker.variants(bench)),
                wipe_workspace=wipe,
            )
            timings.append(contest.run())
        if not timings:
            raise RuntimeError("no baseline could be run")
        latency_ms = timings[0].latency_ms
        least_ms = reject_below_ms(work, self._premises.peaks, self._premises.task.precision)
        if latency_ms < least_ms:  # before calling anybody a cheat: were the peaks measured on a busy machine?
            with self._premises.all_threads():
                cache = Path(self._premises.config.cache)
                self._premises.peaks = improve(self._premises.peaks, cache, self._premises.device)
            least_ms = reject_below_ms(work, self._premises.peaks, self._premises.task.precision)
        face(Speed(workload.name, latency_ms, least_ms), self._settings.without)
        return WorkloadResult(
            workload=workload.name,
            axes=workload.axes,
            latency_ms=latency_ms,
            timing=timings[0].mode,
            baselines=tuple(t.baseline for t in timings),
            error=measured.error,
            error_limit=measured.limit,
            floor_ms=floor_ms(work, self._premises.peaks, self._premises.task.precision),
            bytes=work.read_bytes + work.written_bytes,
            flops=work.flops,
            checks=measured.checks,
            reference=measured.reference,
        )

    def _parties(self, peer: Peer, bench: Bench, side: Side, idle: Idle) -> Parties:
        limit_s = self.call_limit_s(bench.workload) * len(bench.sets) + 1.0
        # On a GPU it is one call that is timed; on the CPU the way itself measures it, beside the samples.
        returned = peer.returns and self._premises.device.type == "cuda"
        delivered_ns = delivery_ns(bench) / len(bench.sets) if returned else 0.0
        return Parties(peer, bench, side, self._settings, limit_s, idle, delivered_ns)

    def _way(self, parties: Parties) -> Way:
        if self._premises.device.type == "cpu":
            return OnCpu(parties)
        if parties.peer.trusted:
            return Replayed(parties)
        return FromOutside(parties, _spares(parties.bench, parties.peer.returns))

    def sobered(
        self, bench: Bench, result: WorkloadResult, replayer: Peer | None, idle: Idle, returns: bool
    ) -> WorkloadResult:
        """What was timed from outside, against baselines that are timed once more now that the candidate is gone: what
        it had left on the device may have slowed them down."""
        baselines = []
        for baseline in result.baselines:
            side = self._premises.side(bench, baseline.name)
            if side is not None and replayer is not None:
                way = FromOutside(self._parties(replayer, bench, side, idle), _spares(bench, returns))
                called = range(way.calls())
                alone_ms = median([way.baseline_alone(called) / len(called) / 1e6 for _ in range(_SOBER_SAMPLES)])
                baseline = _slowed_by(baseline, alone_ms)
            baselines.append(baseline)
        return replace(result, baselines=tuple(baselines))


def _spares(bench: Bench, returns: bool) -> list[torch.Tensor]:
    """Where a baseline's results are copied to, if those of the candidate are."""
    return [torch.empty_like(output) for output in bench.sets[0].outputs] if returns else []


def _slowed_by(baseline: Baseline, alone_ms: float) -> Baseline:
    """A baseline as it is without the candidate, where that differs."""
    share = alone_ms / baseline.latency_ms
    if share >= _SOBER:
        return baseline
    interval = baseline.interval and Interval(baseline.interval.low * share, baseline.interval.high * share)
    return replace(baseline, latency_ms=alone_ms, speedup=baseline.speedup * share, interval=interval)
