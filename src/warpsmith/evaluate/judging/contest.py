"""Timing: the candidate and a baseline in turn, on the same fresh data, until the ratio is known.

Each pair draws new inputs for every set, poisons the outputs, flushes the cache before either side, runs
candidate and baseline in alternating order (A B, B A, ...) and compares what the candidate wrote with what
the baseline computed: every timed result is checked. How a sample is taken, and whose clock counts, is for
`ways` to say.
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
from warpsmith.core.task import TensorRole
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.check import Surprise, blame_late_work
from warpsmith.evaluate.judging.findings import Condemned
from warpsmith.evaluate.judging.peer import Peer
from warpsmith.evaluate.judging.statistics import median, narrow_enough, ratio_interval
from warpsmith.evaluate.judging.ways import Pairs, Parties, Way

Outputs = Mapping[int, tuple[torch.Tensor, ...]]  # by the index of the set
_WARM_UP_PAIRS = 2
_SURPRISES_S = 0.2  # per contest, if that is enough for the fewest
_FEWEST_SURPRISES = 3  # one may come to a call that a cheat has a reason to be careful in


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
        parties: Parties,
        way: Callable[[], Way],
        *,
        verify: Callable[[Sequence[int], Outputs], None],
        surprise: Callable[[Sequence[int]], Surprise],
        variants: int,
        wipe_workspace: Callable[[], None],
    ) -> None:
        self._peer: Peer = parties.peer
        self._bench: Bench = parties.bench
        self._side = parties.side
        self._settings: Settings = parties.settings
        self._new_way = way  # each measurement has its own
        self._way = way()
        self._verify = verify
        self._surprise = surprise
        self._variants = variants  # how many kinds of data there are to surprise with
        self._wipe = wipe_workspace
        self._rng = random.SystemRandom()  # nobody can foresee the inputs
        self._indices = tuple(range(len(parties.bench.sets)))

    def run(self) -> Timing:
        """Sample pairs until the interval of the ratio is narrow enough or the budget is spent."""
        pairs = self._sample()
        if self._way.objection(pairs) is not None:
            # Something else may have begun to use the machine in between: measure once more before judging.
            self._way = self._new_way()
            pairs = self._sample()
            found = self._way.objection(pairs)
            if found is not None:
                raise Condemned(found.status, found.reason)
        pairs, calls = self._way.believed(pairs), self._way.calls()
        speedup, interval = ratio_interval(pairs)
        baseline_ms, latency_ms = (median(side) / calls / 1e6 for side in zip(*pairs, strict=True))
        return Timing(latency_ms, self._way.mode, Baseline(self._side.name, baseline_ms, speedup, interval, len(pairs)))

    def _sample(self) -> Pairs:
        settings = self._settings
        pairs: Pairs = []
        for _ in range(_WARM_UP_PAIRS):
            start = time.monotonic()
            self._pair(True)
            self._way.discard()
        surprised = self._surprises(time.monotonic() - start)
        start = time.monotonic()
        while len(pairs) < settings.max_samples:
            if len(pairs) in surprised:
                surprised.remove(len(pairs))
                self._pair(True, surprise=True)
                self._way.discard()
            pairs.append(self._pair(len(pairs) % 2 == 0))
            if len(pairs) >= settings.min_samples:
                _, interval = ratio_interval(pairs)
                spent_s = time.monotonic() - start
                if narrow_enough(interval, settings.target_width) or spent_s > settings.timing_budget_s:
                    break
        return pairs

    def _surprises(self, pair_s: float) -> list[int]:
        """Before which of the pairs there is another one with other data; nobody can tell it from the rest."""
        wanted = max(_FEWEST_SURPRISES, math.ceil(self._variants / self._way.calls()))
        most = min(max(_FEWEST_SURPRISES, int(_SURPRISES_S / pair_s)), self._settings.min_samples)
        return self._rng.sample(range(self._settings.min_samples), min(wanted, most))

    def _pair(self, candidate_first: bool, *, surprise: bool = False) -> tuple[float, float]:
        """The baseline's time and the candidate's."""
        bench, way = self._bench, self._way
        self._check_time()
        self._peer.stage = f"being timed on workload {bench.workload.name!r}"
        # Some sets are left out, and the order changes: work done for another call than the present one shows.
        called = self._rng.sample(self._indices, way.calls())
        surprised = self._surprise(called) if surprise else None
        self._lay_out(surprised)
        bench.poison(self._indices)
        self._wipe()
        seal = bench.seal() if way.guarded else None
        bench.settle()
        if candidate_first:
            candidate_ns = way.candidate(called)
            captured = bench.capture(called) if way.guarded else None
            baseline_ns = way.baseline(called)
            if captured is not None:
                bench.compare(called, captured)
        else:
            baseline_ns = way.baseline(called)
            candidate_ns = way.candidate(called)
        bench.inspect(self._indices, seal)
        bench.check_untouched([index for index in self._indices if index not in called])
        self._judge(called, dict(zip(called, self._side.outputs(), strict=True)), surprised)
        return baseline_ns, candidate_ns

    def _lay_out(self, surprised: Surprise | None) -> None:
        """New data for all sets. A host that copies state does so before it can see anything of the arguments; what it
        is asked besides comes before either, since it could work ahead in any request that no clock covers."""
        bench = self._bench
        self._way.rouse()
        for index in self._indices:
            bench.shift_state(index, self._rng)
        for index, inputs in surprised.inputs.items() if surprised else ():
            bench.put(index, inputs, TensorRole.STATE)
        self._way.renew()
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

    def _check_time(self) -> None:
        """A kernel too slow to be timed is the candidate's failure; our own part of the work, however long it takes on
        a machine that others use, is not."""
        if self._peer.waited_s > self._settings.limits.total_s:
            raise Condemned(
                Status.TIMED_OUT,
                f"right, but far too slow to be timed: its calls took longer than {self._settings.limits.total_s:g} s "
                "in all.",
            )
