"""Timing: the candidate and a baseline in turn, on the same fresh data, until the ratio is known.

Each pair draws new inputs for every set, poisons the outputs, flushes the cache before either side, runs
candidate and baseline in alternating order (A B, B A, ...) and compares what the candidate wrote with what
the baseline computed: every timed result is checked. The host says how long it took; the judge's own clock
around the request says whether that can be true.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Baseline, Status
from warpsmith.core.guarding import Clock, Objection
from warpsmith.core.task import TensorRole
from warpsmith.evaluate.baselines import CPU_SETTLE_S, Side, take_back
from warpsmith.evaluate.bench import Bench
from warpsmith.evaluate.check import Surprise, blame_late_work
from warpsmith.evaluate.findings import Condemned
from warpsmith.evaluate.messages import Acknowledged, Capture, Captured, Flush, Sample, Sampled
from warpsmith.evaluate.peer import Peer
from warpsmith.evaluate.statistics import median, narrow_enough, ratio_interval
from warpsmith.guards import panel

Outputs = Mapping[int, tuple[torch.Tensor, ...]]  # by the index of the set
_WARM_UP_PAIRS = 2
_SURPRISES_S = 0.2  # per contest, if that is enough for the fewest
_FEWEST_SURPRISES = 3  # one may come to a call that a cheat has a reason to be careful in
_CLOCK_SLACK_NS = {"cpu": 1_000_000, "cuda": 1_000_000}  # to wake a process up, to hand a GPU over
_PYTHON_SLACK = 2.0  # times that for a host that runs Python before and after its clock
_CLOCK_SLACK_SHARE = {"cpu": 0.15, "cuda": 0.5}
_GROSS_SLACK_NS = 2_000_000  # on the CPU: this much, and
_GROSS_SHARE = 2.0  # this often the claim itself, is more than any load of the machine explains in every sample
_LONG_RUN_NS = 1e7
_LONG_RUNS = 8
_MOST_ROUNDS = 500
_WARM_SHARE = 1.15
_DRIFT = 1.25  # how much longer than its median a cold sample may claim to be and still count
_GAP_NS = 5_000  # between two rounds


@dataclass(frozen=True)
class Idle:
    """What an empty request costs by our clock, in nanoseconds, before any code of the candidate is there."""

    usual_ns: float
    credible_ns: float  # the same, but not much above the least ever seen: all that a claim can be excused with


@dataclass(frozen=True)
class _Taken:
    """All samples of one contest, in nanoseconds."""

    pairs: list[tuple[float, float]]  # baseline, candidate by its own claim
    excess_ns: float  # the least that our clock exceeded a claim by
    outer_ns: float  # the least that our clock showed around a sample of the candidate


@dataclass(frozen=True)
class Timing:
    """The outcome of one contest."""

    latency_ms: float
    mode: str  # "graph", "batched" or "single"
    baseline: Baseline


class Contest:
    """One candidate against one baseline on one workload."""

    def __init__(
        self,
        peer: Peer,
        bench: Bench,
        side: Side,
        settings: Settings,
        *,
        call_limit_s: float,
        deadline: float,
        idle: Idle,
        verify: Callable[[Sequence[int], Outputs], None],
        surprise: Callable[[Sequence[int]], Surprise],
        variants: int,
        wipe_workspace: Callable[[], None],
        delivery: Callable[[bool], float] | None = None,
    ) -> None:
        self._peer = peer
        self._bench = bench
        self._side = side
        self._settings = settings
        self._limit_s = call_limit_s * len(bench.sets) + 1.0
        self._deadline = deadline  # by time.monotonic(), for everything about this candidate
        self._idle = idle
        self._verify = verify
        self._surprise = surprise
        self._variants = variants  # how many kinds of data there are to surprise with
        self._wipe = wipe_workspace
        self._delivery = delivery  # for a candidate that returns tensors, what carrying them over may take, untimed
        self._delivery_ns = 0.0  # per sample
        self._rng = random.SystemRandom()  # nobody can foresee the inputs
        self._indices = tuple(range(len(bench.sets)))
        self._device = bench.sets[0].outputs[0].device
        self._cpu = self._device.type == "cpu"
        self._outer_ns = 0  # our clock around the candidate's last sample

    def run(self) -> Timing:
        """Sample pairs until the interval of the ratio is narrow enough or the budget is spent."""
        graph = self._capture()
        self._delivery_ns = self._delivery(graph) if self._delivery else 0.0
        taken = self._sample(graph)
        if self._contradiction(graph, taken) is not None:
            # Something else may have begun to use the machine in between: measure once more before judging.
            taken = self._sample(graph)
            found = self._contradiction(graph, taken)
            if found is not None:
                raise Condemned(found.status, found.reason)
        pairs, per_set = self._believed(taken), self._calls_per_sample(graph)
        speedup, interval = ratio_interval(pairs)
        mode = "graph" if graph else ("batched" if per_set > 1 else "single")
        latency_ms, baseline_ms = (median(side) / per_set / 1e6 for side in (_second(pairs), _first(pairs)))
        return Timing(latency_ms, mode, Baseline(self._side.name, baseline_ms, speedup, interval, len(pairs)))

    def _sample(self, graph: bool) -> _Taken:
        settings = self._settings
        pairs: list[tuple[float, float]] = []
        excess_ns = outer_ns = math.inf
        for _ in range(_WARM_UP_PAIRS):
            start = time.monotonic()
            self._pair(graph, True)
        surprised = self._surprises(graph, time.monotonic() - start)
        start = time.monotonic()
        while len(pairs) < settings.max_samples:
            if len(pairs) in surprised:
                surprised.remove(len(pairs))
                self._pair(graph, True, surprise=True)
            candidate_ns, baseline_ns = self._pair(graph, len(pairs) % 2 == 0)
            excess_ns = min(excess_ns, self._outer_ns - candidate_ns)
            outer_ns = min(outer_ns, self._outer_ns)
            pairs.append((baseline_ns, candidate_ns))
            if len(pairs) >= settings.min_samples:
                _, interval = ratio_interval(pairs)
                spent_s = time.monotonic() - start
                if narrow_enough(interval, settings.target_width) or spent_s > settings.timing_budget_s:
                    break
        return _Taken(pairs, excess_ns, outer_ns)

    def _surprises(self, graph: bool, pair_s: float) -> list[int]:
        """Before which of the pairs there is another one with other data; nobody can tell it from the rest."""
        wanted = max(_FEWEST_SURPRISES, math.ceil(self._variants / self._calls_per_sample(graph)))
        most = min(max(_FEWEST_SURPRISES, int(_SURPRISES_S / pair_s)), self._settings.min_samples)
        return self._rng.sample(range(self._settings.min_samples), min(wanted, most))

    def _believed(self, taken: _Taken) -> list[tuple[float, float]]:
        """The pairs, with no claim below the fastest sample by our own clock.

        A claim that is not believed stands for the fastest sample, and so does the baseline's time beside it: on a busy
        machine most samples are slower than that, and the difference would be the forger's gain.
        On the CPU a request costs little and evenly, so that a process that claims less than it took gains nothing.
        On a GPU it costs up to a millisecond, and unevenly (measured: 0.05 to 0.4 ms more than an empty request):
        there repetition has to do (`_contradiction`).
        """
        if not self._cpu or "clock" in self._settings.without:
            return taken.pairs
        least_ns = taken.outer_ns - self._idle.credible_ns - self._delivery_ns
        fastest = (min(_first(taken.pairs)), least_ns)
        return [fastest if pair[1] < least_ns else pair for pair in taken.pairs]

    def _capture(self) -> bool:
        """Graphs for both sides or for neither, so that launch cost does not decide."""
        if self._cpu or not self._side.capture():
            return False
        self._peer.stage = "being captured into a graph"
        reply = self._peer.ask(Capture(tuple(self._bench.numbers)), Captured, self._limit_s)
        return reply.ok

    def _calls_per_sample(self, graph: bool) -> int:
        count = len(self._indices)
        return count if graph or count == 1 else count - max(1, count // 8)

    def _pair(self, graph: bool, candidate_first: bool, *, surprise: bool = False) -> tuple[float, float]:
        bench = self._bench
        self._check_time()
        if self._cpu:  # before any new data is there; its threads then stand still, awake, until they are timed
            self._peer.ask(Sample((), False, 1, True), Sampled, self._limit_s)
        # Some sets are left out, and the order changes: work done for another call than the present one shows.
        called = self._rng.sample(self._indices, self._calls_per_sample(graph)) if not graph else self._indices
        surprised = self._surprise(called) if surprise else None
        self._lay_out(surprised)
        bench.poison(self._indices)
        self._wipe()
        seal = bench.seal()  # reading it back also waits for the device
        if candidate_first:
            candidate_ns = self._candidate(graph, called)
            captured = None if self._cpu else bench.capture(called)  # a host on the CPU stands still meanwhile
            baseline_ns = self._baseline(graph, called)
            if captured is not None:
                bench.compare(called, captured)
        else:
            baseline_ns = self._baseline(graph, called)
            candidate_ns = self._candidate(graph, called)
        bench.inspect(self._indices, seal)
        bench.check_untouched([index for index in self._indices if index not in called])
        self._judge(called, dict(zip(called, self._side.outputs(), strict=True)), surprised)
        return candidate_ns, baseline_ns

    def _lay_out(self, surprised: Surprise | None) -> None:
        """New data for all sets. A host that copies state does so before it can see anything of the arguments."""
        bench = self._bench
        for index in self._indices:
            bench.shift_state(index, self._rng)
        for index, inputs in surprised.inputs.items() if surprised else ():
            bench.put(index, inputs, TensorRole.STATE)
        if self._cpu and self._peer.renews:
            self._peer.ask(Flush(), Acknowledged, self._limit_s)
        for index in self._indices:
            bench.refresh(index, self._rng)
        for index, inputs in surprised.inputs.items() if surprised else ():
            bench.put(index, inputs, TensorRole.INPUT)

    def _judge(self, called: Sequence[int], outputs: Outputs, surprised: Surprise | None) -> None:
        try:
            self._verify([i for i in called if surprised is None or i not in surprised.inputs], outputs)
            if surprised is not None:
                surprised.verify()
        except Condemned:
            blame_late_work(self._peer, self._bench, called)
            raise

    def _baseline(self, graph: bool, called: Sequence[int]) -> int:
        if not self._cpu:  # the candidate finds the device fresh from another process: so shall the baseline
            self._peer.ask(Sample((), False, 1, False), Sampled, self._limit_s)
        return max(1, self._side.sample(graph, called))

    def _candidate(self, graph: bool, called: Sequence[int]) -> int:
        self._peer.stage = f"being timed on workload {self._bench.workload.name!r}"
        if self._cpu:
            self._side.flush()  # here, not in the candidate's process: it must not run between data and clock
            time.sleep(CPU_SETTLE_S)
        start_ns = time.perf_counter_ns()
        reply = self._peer.ask(self._request(called, graph, 1), Sampled, self._limit_s)
        self._outer_ns = self._peer.outer_ns
        if not self._cpu:
            take_back(self._device)
            self._outer_ns = time.perf_counter_ns() - start_ns
        if reply.returned or reply.device_error:
            said = reply.device_text or f"the entry point returned {reply.returned}"
            raise Condemned(Status.LAUNCH_FAILED, f"a timed call failed: {said}.")
        return max(1, reply.elapsed_ns)

    def _request(self, called: Sequence[int], graph: bool, rounds: int) -> Sample:
        return Sample(tuple(self._bench.numbers[i] for i in called), graph, rounds, False)

    def _contradiction(self, graph: bool, taken: _Taken) -> Objection | None:
        """Hold the host's claims against our own clock; what speaks against them, if anything.

        Whoever is found out here is called a cheat, so every doubt is decided for the candidate; on the CPU a claim
        that is not believed gains nothing in any case (`_believed`).
        The best case of (our clock - its claim) must be about what an idle request costs. That is loose: a
        process takes time to wake up, and a GPU to change hands. So on a GPU the same work is also repeated, without
        flushing, until it takes many milliseconds by our clock: with warm caches a round cannot take longer
        than was claimed for a cold one just before.
        """
        kind, without = "cpu" if self._cpu else "cuda", self._settings.without
        if "clock" in without:
            return None
        claimed_ns = median(_second(taken.pairs))
        slack_ns = _CLOCK_SLACK_NS[kind] * (_PYTHON_SLACK if self._delivery else 1.0)
        allowed_ns = slack_ns + _CLOCK_SLACK_SHARE[kind] * claimed_ns + self._delivery_ns
        claim = Clock(claimed_ns, taken.excess_ns - self._idle.usual_ns, allowed_ns)
        found = panel.objection(claim, without)
        if found is None and self._cpu:  # what is usual may be much on a busy machine; not all of it excuses a claim
            gross_ns = max(_GROSS_SLACK_NS + self._delivery_ns, _GROSS_SHARE * claimed_ns)
            return panel.objection(Clock(claimed_ns, taken.excess_ns - self._idle.credible_ns, gross_ns), without)
        if found is not None:
            return found
        rounds = max(2, min(_MOST_ROUNDS, round(_LONG_RUN_NS / claimed_ns)))
        request = self._request(self._indices, graph, rounds)
        for attempt in range(_LONG_RUNS):
            self._check_time()
            time.sleep(0.02 * attempt)
            cold_ns = min(self._candidate(graph, self._indices), _DRIFT * claimed_ns)
            self._peer.ask(request, Sampled, min(self._limit_s * rounds, self._settings.limits.total_s))
            warm_ns = (self._peer.outer_ns - self._idle.usual_ns) / rounds
            round_allowed_ns = cold_ns * _WARM_SHARE + _GAP_NS + self._delivery_ns
            repeated = replace(claim, round_ns=warm_ns, round_allowed_ns=round_allowed_ns)
            found = panel.objection(repeated, without)
            if found is None:
                return None
        return found

    def _check_time(self) -> None:
        """A kernel too slow to be timed is the candidate's failure; waiting on would make it look like ours."""
        if time.monotonic() > self._deadline:
            raise Condemned(
                Status.TIMED_OUT,
                f"right, but far too slow to be timed: its {self._settings.limits.total_s:g} s in all are over.",
            )


def _first(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [first for first, _ in pairs]


def _second(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [second for _, second in pairs]
