"""Timing: the candidate and a baseline in turn, on the same fresh data, until the ratio is known.

Each pair draws new inputs for every set, poisons the outputs, flushes the cache before either side, runs
candidate and baseline in alternating order (A B, B A, ...) and compares what the candidate wrote with what
the baseline computed: every timed result is checked. The host says how long it took; the judge's own clock
around the request says whether that can be true.
"""

from __future__ import annotations

import ctypes
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Baseline, Status
from warpsmith.evaluate.bench import Bench
from warpsmith.evaluate.findings import Condemned
from warpsmith.evaluate.messages import Acknowledged, Capture, Captured, Flush, Sample, Sampled
from warpsmith.evaluate.peer import Peer
from warpsmith.evaluate.statistics import median, narrow_enough, ratio_interval

Outputs = Sequence[tuple[torch.Tensor, ...]]
_WARM_UP_PAIRS = 2
_CPU_SETTLE_S = 0.003  # OpenMP threads of the side that ran last spin for a while before they sleep
_CLOCK_SLACK_NS = 1_000_000  # to wake a process up, to hand a GPU over: up to 0.9 ms seen on an H200
_CLOCK_SLACK_SHARE = 0.5
_LONG_RUN_NS = 1e7
_LONG_RUNS = 8
_MOST_ROUNDS = 500
_WARM_SHARE = 1.15
_DRIFT = 1.25  # how much longer than its median a cold sample may claim to be and still count
_GAP_NS = 5_000  # between two rounds


class Side(Protocol):
    """A baseline, runnable on all sets of a bench."""

    name: str

    def sample(self, graph: bool) -> int:
        """Flush, run every set once, and give the time in nanoseconds."""
        ...

    def outputs(self) -> Outputs:
        """What the last sample computed, per set."""
        ...

    def capture(self) -> bool:
        """Prepare a graph of all sets; False where that is not possible."""
        ...


def warm_up_sets(count: int, kind: str) -> int:
    """How many of the sets are called untimed before the others.

    On the CPU the threads of a side sleep while the other runs, and waking them, in a virtual machine above
    all, takes a time that says nothing about the kernel. A call on data of its own wakes them and leaves the
    timed data cold. On a GPU nothing sleeps.
    """
    return 1 if kind == "cpu" and count > 1 else 0


class CpuBaseline:
    """A PyTorch callable per set on the CPU."""

    def __init__(
        self,
        name: str,
        calls: Sequence[Callable[[], tuple[torch.Tensor, ...]]],
        flush_bytes: int,
        warm_up: int,
    ) -> None:
        self.name = name
        self._calls = calls
        self._warm_up = warm_up
        self._flush = ctypes.create_string_buffer(flush_bytes) if flush_bytes else None
        self._outputs: list[tuple[torch.Tensor, ...]] = []

    def sample(self, graph: bool) -> int:
        self._outputs.clear()  # the allocations of the last round go back before the clock starts
        if self._flush is not None:
            ctypes.memset(self._flush, 0x5A, len(self._flush))
        time.sleep(_CPU_SETTLE_S)
        for call in self._calls[: self._warm_up]:
            self._outputs.append(call())
        start = time.perf_counter_ns()
        for call in self._calls[self._warm_up :]:
            self._outputs.append(call())
        return time.perf_counter_ns() - start

    def outputs(self) -> Outputs:
        return self._outputs

    def capture(self) -> bool:
        return False


class CudaBaseline:
    """The same on a GPU, as a graph where it can be captured."""

    def __init__(
        self,
        name: str,
        calls: Sequence[Callable[[], tuple[torch.Tensor, ...]]],
        flush: Callable[[], None],
    ) -> None:
        self.name = name
        self._calls = calls
        self._flush = flush
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured: list[tuple[torch.Tensor, ...]] = []
        self._outputs: list[tuple[torch.Tensor, ...]] = []
        self._start = torch.cuda.Event(enable_timing=True)
        self._stop = torch.cuda.Event(enable_timing=True)

    def capture(self) -> bool:
        if self._graph is not None:
            return True
        side_stream = torch.cuda.Stream()
        side_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side_stream):
            for call in self._calls:  # libraries create their handles outside the capture
                call()
        torch.cuda.current_stream().wait_stream(side_stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._captured = [call() for call in self._calls]
        except RuntimeError:  # an operator that synchronises or copies from the host cannot be captured
            torch.cuda.synchronize()
            self._captured = []
            return False
        self._graph = graph
        return True

    def sample(self, graph: bool) -> int:
        self._outputs.clear()
        self._flush()
        self._start.record()
        if graph and self._graph is not None:
            self._graph.replay()
            self._outputs.extend(self._captured)
        else:
            for call in self._calls:
                self._outputs.append(call())
        self._stop.record()
        torch.cuda.synchronize()
        return round(float(self._start.elapsed_time(self._stop)) * 1e6)

    def outputs(self) -> Outputs:
        return self._outputs


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
        idle_ns: int,
        verify: Callable[[Sequence[int], Outputs], None],
        wipe_workspace: Callable[[], None],
    ) -> None:
        self._peer = peer
        self._bench = bench
        self._side = side
        self._settings = settings
        self._limit_s = call_limit_s * len(bench.sets) + 1.0
        self._deadline = deadline  # by time.monotonic(), for everything about this candidate
        self._idle_ns = idle_ns  # what a request costs when nothing is launched, by our clock
        self._verify = verify
        self._wipe = wipe_workspace
        self._rng = random.Random()  # seeded by the operating system: nobody can foresee the inputs
        self._indices = tuple(range(len(bench.sets)))
        count = warm_up_sets(len(bench.sets), bench.sets[0].outputs[0].device.type)
        numbers = tuple(bench.numbers)
        self._warm_up, self._timed = numbers[:count], numbers[count:]
        self._cpu = bench.sets[0].outputs[0].device.type == "cpu"
        self._outer_ns = 0  # our clock around the candidate's last sample

    def run(self) -> Timing:
        """Sample pairs until the interval of the ratio is narrow enough or the budget is spent."""
        graph = self._capture()
        pairs, excess_ns = self._sample(graph)
        if not self._plausible(graph, pairs, excess_ns):
            # Something else may have begun to use the machine in between: measure once more before judging.
            pairs, excess_ns = self._sample(graph)
            if not self._plausible(graph, pairs, excess_ns):
                raise self._contradiction(pairs, excess_ns)
        per_set = len(self._timed)
        speedup, interval = ratio_interval(pairs)
        mode = "graph" if graph else ("batched" if per_set > 1 else "single")
        latency_ms, baseline_ms = (median(side) / per_set / 1e6 for side in (_second(pairs), _first(pairs)))
        return Timing(latency_ms, mode, Baseline(self._side.name, baseline_ms, speedup, interval, len(pairs)))

    def _sample(self, graph: bool) -> tuple[list[tuple[float, float]], float]:
        """(baseline, candidate) times in nanoseconds, and the least that our clock exceeded a claim by."""
        settings = self._settings
        pairs: list[tuple[float, float]] = []
        excess_ns = math.inf
        for _ in range(_WARM_UP_PAIRS):
            self._pair(graph, True)
        start = time.monotonic()
        while len(pairs) < settings.max_samples:
            candidate_ns, baseline_ns = self._pair(graph, len(pairs) % 2 == 0)
            excess_ns = min(excess_ns, self._outer_ns - candidate_ns)
            pairs.append((baseline_ns, candidate_ns))
            if len(pairs) >= settings.min_samples:
                _, interval = ratio_interval(pairs)
                spent_s = time.monotonic() - start
                if narrow_enough(interval, settings.target_width) or spent_s > settings.timing_budget_s:
                    break
        return pairs, excess_ns

    def _capture(self) -> bool:
        """Graphs for both sides or for neither, so that launch cost does not decide."""
        if self._cpu or not self._side.capture():
            return False
        self._peer.stage = "being captured into a graph"
        reply = self._peer.ask(Capture(self._timed), Captured, self._limit_s)
        return reply.ok

    def _pair(self, graph: bool, candidate_first: bool) -> tuple[float, float]:
        bench = self._bench
        self._check_time()
        for index in self._indices:
            bench.refresh(index, self._rng)
        bench.poison(self._indices)
        self._wipe()
        seal = bench.seal()  # reading it back also waits for the device
        if candidate_first:
            candidate_ns = self._candidate(graph)
            baseline_ns = self._baseline(graph)
        else:
            baseline_ns = self._baseline(graph)
            candidate_ns = self._candidate(graph)
        bench.inspect(self._indices, seal)
        self._verify(self._indices, self._side.outputs())
        return candidate_ns, baseline_ns

    def _baseline(self, graph: bool) -> int:
        if not self._cpu:  # the candidate finds the device fresh from another process: so shall the baseline
            self._peer.ask(Sample((), False, 1, ()), Sampled, self._limit_s)
        return max(1, self._side.sample(graph))

    def _candidate(self, graph: bool) -> int:
        self._peer.stage = f"being timed on workload {self._bench.workload.name!r}"
        if self._cpu:
            self._peer.ask(Flush(), Acknowledged, self._limit_s)
            time.sleep(_CPU_SETTLE_S)
        reply = self._peer.ask(Sample(self._timed, graph, 1, self._warm_up), Sampled, self._limit_s)
        self._outer_ns = self._peer.outer_ns
        if reply.returned or reply.device_error:
            said = reply.device_text or f"the entry point returned {reply.returned}"
            raise Condemned(Status.LAUNCH_FAILED, f"a timed call failed: {said}.")
        return max(1, reply.elapsed_ns)

    def _plausible(self, graph: bool, pairs: Sequence[tuple[float, float]], excess_ns: float) -> bool:
        """Hold the host's claims against our own clock, twice.

        The best case of (our clock - its claim) must be about what an idle request costs. That is loose: a
        process takes time to wake up, and a GPU to change hands. So the same work is also repeated, without
        flushing, until it takes many milliseconds by our clock: with warm caches a round cannot take longer
        than was claimed for a cold one just before.
        """
        claimed_ns = median(_second(pairs))
        untimed = len(self._warm_up) / len(self._timed)  # calls inside the request that the claim leaves out
        share = _CLOCK_SLACK_SHARE + (1 + _CLOCK_SLACK_SHARE) * untimed
        if excess_ns > self._idle_ns + _CLOCK_SLACK_NS + share * claimed_ns:
            return False
        rounds = max(2, min(_MOST_ROUNDS, round(_LONG_RUN_NS / claimed_ns)))
        request = Sample(self._timed, graph, rounds, ())
        for attempt in range(_LONG_RUNS):
            self._check_time()
            time.sleep(0.02 * attempt)
            cold_ns = min(self._candidate(graph), _DRIFT * claimed_ns)
            self._peer.ask(request, Sampled, min(self._limit_s * rounds, self._settings.limits.total_s))
            warm_ns = (self._peer.outer_ns - self._idle_ns) / rounds
            if warm_ns <= cold_ns * _WARM_SHARE + _GAP_NS:
                return True
        return False

    def _check_time(self) -> None:
        """A kernel too slow to be timed is the candidate's failure; waiting on would make it look like ours."""
        if time.monotonic() > self._deadline:
            raise Condemned(
                Status.TIMED_OUT,
                f"right, but far too slow to be timed: its {self._settings.limits.total_s:g} s in all are over.",
            )

    def _contradiction(self, pairs: Sequence[tuple[float, float]], excess_ns: float) -> Condemned:
        claimed_ns = median(_second(pairs))
        return Condemned(
            Status.REJECTED,
            f"timing: the candidate's process reports {claimed_ns / 1e6:.4g} ms, but more time passed outside "
            f"(at least {max(0.0, excess_ns - self._idle_ns) / 1e6:.4g} ms per sample, or in repeated runs): work was "
            "done outside the timed stream, or the clock was tampered with.",
        )


def _first(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [first for first, _ in pairs]


def _second(pairs: Sequence[tuple[float, float]]) -> list[float]:
    return [second for _, second in pairs]
