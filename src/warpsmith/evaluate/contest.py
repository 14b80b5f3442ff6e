"""Timing: the candidate and a baseline in turn, on the same fresh data, until the ratio is known.

Each pair draws new inputs for every set, poisons the outputs, flushes the cache before either side, runs
candidate and baseline in alternating order (A B, B A, ...) and compares what the candidate wrote with what
the baseline computed: every timed result is checked.

Whose clock counts depends on where the candidate runs. On the CPU its process says how long it took, and the judge's
own clock around the request says whether that can be true. On a GPU a replayer makes its calls (`replay`), and its
clock is ours; a candidate that cannot be replayed is asked for one call at a time, and the judge's clock around the
request, until the device is idle, is what counts: an upper bound, since it includes the handing over.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Baseline, Status
from warpsmith.core.guarding import Clock, Objection
from warpsmith.core.task import TensorRole
from warpsmith.evaluate.baselines import CPU_SETTLE_S, Side, take_back
from warpsmith.evaluate.bench import Bench
from warpsmith.evaluate.check import Surprise, blame_late_work
from warpsmith.evaluate.findings import Condemned
from warpsmith.evaluate.messages import Acknowledged, Flush, Sample, Sampled
from warpsmith.evaluate.peer import Peer
from warpsmith.evaluate.statistics import median, narrow_enough, ratio_interval
from warpsmith.guards import panel

Outputs = Mapping[int, tuple[torch.Tensor, ...]]  # by the index of the set
_WARM_UP_PAIRS = 2
_SURPRISES_S = 0.2  # per contest, if that is enough for the fewest
_FEWEST_SURPRISES = 3  # one may come to a call that a cheat has a reason to be careful in
_CLOCK_SLACK_NS = 1_000_000  # to wake a process up, to hand a GPU over
_PYTHON_SLACK = 2.0  # times that for a host that runs Python before and after its clock
_CLOCK_SLACK_SHARE = {"cpu": 0.15, "cuda": 0.5}
_GROSS_SLACK_NS = 2_000_000  # this much, and
_GROSS_SHARE = 2.0  # this often the claim itself, is more than any load of the machine explains in every sample
_MOST_OUTSIDE = 8  # calls of a sample that is timed from outside: each is a request


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
    mode: str  # "replayed", "outside", "batched" or "single"
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
        self._trusted = peer.trusted
        self._outside = not (self._cpu or self._trusted)
        self._outer_ns = 0  # our clock around the candidate's last sample
        self._claimed_ns = 0  # what its process says of it

    def run(self) -> Timing:
        """Sample pairs until the interval of the ratio is narrow enough or the budget is spent."""
        graph = not self._cpu and self._side.capture()
        self._delivery_ns = self._delivery(False) if self._delivery else 0.0
        taken = self._sample(graph)
        if self._contradiction(taken) is not None:
            # Something else may have begun to use the machine in between: measure once more before judging.
            taken = self._sample(graph)
            found = self._contradiction(taken)
            if found is not None:
                raise Condemned(found.status, found.reason)
        pairs, per_set = self._believed(taken), self._calls_per_sample()
        speedup, interval = ratio_interval(pairs)
        mode = "batched" if per_set > 1 else "single"
        if not self._cpu:
            mode = "replayed" if self._trusted else "outside"
        latency_ms, baseline_ms = (median(side) / per_set / 1e6 for side in (_second(pairs), _first(pairs)))
        return Timing(latency_ms, mode, Baseline(self._side.name, baseline_ms, speedup, interval, len(pairs)))

    def _sample(self, graph: bool) -> _Taken:
        settings = self._settings
        pairs: list[tuple[float, float]] = []
        excess_ns = outer_ns = math.inf
        for _ in range(_WARM_UP_PAIRS):
            start = time.monotonic()
            self._pair(graph, True)
        surprised = self._surprises(time.monotonic() - start)
        start = time.monotonic()
        while len(pairs) < settings.max_samples:
            if len(pairs) in surprised:
                surprised.remove(len(pairs))
                self._pair(graph, True, surprise=True)
            candidate_ns, baseline_ns = self._pair(graph, len(pairs) % 2 == 0)
            excess_ns = min(excess_ns, self._outer_ns - self._claimed_ns)
            outer_ns = min(outer_ns, self._outer_ns)
            pairs.append((baseline_ns, candidate_ns))
            if len(pairs) >= settings.min_samples:
                _, interval = ratio_interval(pairs)
                spent_s = time.monotonic() - start
                if narrow_enough(interval, settings.target_width) or spent_s > settings.timing_budget_s:
                    break
        return _Taken(pairs, excess_ns, outer_ns)

    def _surprises(self, pair_s: float) -> list[int]:
        """Before which of the pairs there is another one with other data; nobody can tell it from the rest."""
        wanted = max(_FEWEST_SURPRISES, math.ceil(self._variants / self._calls_per_sample()))
        most = min(max(_FEWEST_SURPRISES, int(_SURPRISES_S / pair_s)), self._settings.min_samples)
        return self._rng.sample(range(self._settings.min_samples), min(wanted, most))

    def _believed(self, taken: _Taken) -> list[tuple[float, float]]:
        """The pairs, with no claim below the fastest sample by our own clock.

        A claim that is not believed stands for the fastest sample, and so does the baseline's time beside it: on a busy
        machine most samples are slower than that, and the difference would be the forger's gain.
        A request costs little and evenly on the CPU, so that a process that claims less than it took gains nothing. On
        a GPU no claim is used in the first place.
        """
        if not self._cpu or "clock" in self._settings.without:
            return taken.pairs
        least_ns = taken.outer_ns - self._idle.credible_ns - self._delivery_ns
        fastest = (min(_first(taken.pairs)), least_ns)
        return [fastest if pair[1] < least_ns else pair for pair in taken.pairs]

    def _calls_per_sample(self) -> int:
        count = len(self._indices)
        called = count if count == 1 else count - max(1, count // 8)
        return min(called, _MOST_OUTSIDE) if self._outside else called

    def _pair(self, graph: bool, candidate_first: bool, *, surprise: bool = False) -> tuple[float, float]:
        bench = self._bench
        self._check_time()
        if self._cpu:  # before any new data is there; its threads then stand still, awake, until they are timed
            self._peer.ask(Sample((), False, 1, True), Sampled, self._limit_s)
        # Some sets are left out, and the order changes: work done for another call than the present one shows.
        called = self._rng.sample(self._indices, self._calls_per_sample())
        surprised = self._surprise(called) if surprise else None
        self._lay_out(surprised)
        bench.poison(self._indices)
        self._wipe()
        # A replayer cannot write to inputs; a host on a GPU could.
        seal = None if self._trusted else bench.seal()
        bench.settle()
        if candidate_first:
            candidate_ns = self._candidate(called)
            captured = bench.capture(called) if self._outside else None  # others stand still, or are dead
            baseline_ns = self._baseline(graph, called)
            if captured is not None:
                bench.compare(called, captured)
        else:
            baseline_ns = self._baseline(graph, called)
            candidate_ns = self._candidate(called)
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

    def _candidate(self, called: Sequence[int]) -> int:
        self._peer.stage = f"being timed on workload {self._bench.workload.name!r}"
        if self._outside:
            return sum(self._from_outside(index) for index in called)
        if self._cpu:
            self._side.flush()  # here, not in the candidate's process: it must not run between data and clock
            time.sleep(CPU_SETTLE_S)
        reply = self._asked(Sample(tuple(self._bench.numbers[i] for i in called), False, 1, False))
        return max(1, reply.elapsed_ns)

    def _from_outside(self, index: int) -> int:
        """One call by our own clock, until the device is idle; never less than its process itself says."""
        self._side.flush()
        torch.cuda.synchronize(self._device)
        start_ns = time.perf_counter_ns()
        reply = self._asked(Sample((self._bench.numbers[index],), False, 1, False, flush=False))
        take_back(self._device)
        self._outer_ns = time.perf_counter_ns() - start_ns
        return max(1, reply.elapsed_ns, round(self._outer_ns - self._idle.credible_ns))

    def _asked(self, request: Sample) -> Sampled:
        reply = self._peer.ask(request, Sampled, self._limit_s)
        self._outer_ns, self._claimed_ns = self._peer.outer_ns, reply.elapsed_ns
        if reply.returned or reply.device_error:
            said = reply.device_text or f"the entry point returned {reply.returned}"
            raise Condemned(Status.LAUNCH_FAILED, f"a timed call failed: {said}.")
        return reply

    def _contradiction(self, taken: _Taken) -> Objection | None:
        """Hold a process's claims against our own clock; what speaks against them, if anything.

        Whoever is found out here is called a cheat, so every doubt is decided for the candidate; a claim that is not
        believed gains nothing in any case (`_believed`), and on a GPU none is used.
        The best case of (our clock - its claim) must be about what an idle request costs.
        """
        without = self._settings.without
        if self._trusted or "clock" in without:
            return None
        claimed_ns = self._claimed_ns if self._outside else median(_second(taken.pairs))
        slack_ns = _CLOCK_SLACK_NS * (_PYTHON_SLACK if self._delivery else 1.0)
        share = _CLOCK_SLACK_SHARE["cpu" if self._cpu else "cuda"]
        allowed_ns = slack_ns + share * claimed_ns + self._delivery_ns
        claim = Clock(claimed_ns, taken.excess_ns - self._idle.usual_ns, allowed_ns)
        found = panel.objection(claim, without)
        if found is not None or not self._cpu:
            return found
        # What is usual may be much on a busy machine; not all of it excuses a claim.
        gross_ns = max(_GROSS_SLACK_NS + self._delivery_ns, _GROSS_SHARE * claimed_ns)
        return panel.objection(Clock(claimed_ns, taken.excess_ns - self._idle.credible_ns, gross_ns), without)

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
