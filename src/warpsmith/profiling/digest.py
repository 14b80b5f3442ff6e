"""A digest: what limits a kernel, the two or three numbers that prove it, and the strategies that address it.

Contains the digest, its wording, and the table from bottlenecks to strategies of the catalogue. The bottleneck itself
is found by `ncu_rules` (GPU counters), `cpu_report` (a compiler's report) and `evaluation_diagnoses` (an evaluation).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from warpsmith.hardware.roofline import Zone
from warpsmith.model.brief import Problem
from warpsmith.model.evaluation import Evaluation, WorkloadResult
from warpsmith.model.numbers import quantity, whole_percent


class Bottleneck(StrEnum):
    """The kinds of causes that limit a kernel's speed."""

    UNCOALESCED = "uncoalesced access"
    BANK_CONFLICTS = "bank conflicts"
    SPILLS = "register spilling"
    LOW_OCCUPANCY = "low occupancy"
    BANDWIDTH = "memory bandwidth near its peak"
    COMPUTE = "arithmetic near its peak"
    PARALLELISM = "too little parallelism"
    LATENCY = "latency"
    LAUNCH = "launch cost"
    NOT_VECTORISED = "a loop that is not vectorised"
    ONE_THREAD = "one thread only"
    UNKNOWN = "no single cause found"


class Rank(IntEnum):
    """The order of diagnoses: removing waste helps in any case, then come limits, then idle parts of the device."""

    WASTE = 0
    LIMIT_REACHED = 1
    IDLE = 2
    UNCLEAR = 3


@dataclass(frozen=True)
class Diagnosis:
    """One possible cause of a kernel's time."""

    bottleneck: Bottleneck
    sentence: str  # the cause, without numbers
    evidence: tuple[str, ...]  # numbers with their meaning, the strongest first
    strategies: tuple[str, ...]  # names in the catalogue, the most promising first
    rank: Rank
    weight: float  # within one rank: the share of the time that it may explain


@dataclass(frozen=True)
class Digest:
    """The diagnosis of one candidate, for proposers and users."""

    bottleneck: Bottleneck
    sentence: str
    evidence: tuple[str, ...]  # three at most
    strategies: tuple[str, ...]
    also: tuple[str, ...] = ()  # further diagnoses, one line each
    source: str = ""  # the tool: "Nsight Compute", "g++ 12.2.0"
    workload: str = ""
    kernel: str = ""  # the kernel that the digest is about
    seconds: float = 0.0  # the time that profiling took

    def without(self, strategies: Collection[str]) -> Digest:
        """The same digest, without these strategies: those that the kernel has, and those that do not fit the task."""
        return replace(self, strategies=tuple(name for name in self.strategies if name not in strategies))

    @property
    def text(self) -> str:
        """The digest in words, for prompts and users."""
        where = ", ".join(filter(None, (self.kernel and f"kernel {self.kernel}", self.workload)))
        lines = [f"Bottleneck: {self.bottleneck.value}. {self.sentence}"]
        if self.evidence:
            lines.append(f"Evidence{f' ({where})' if where else ''}: {'; '.join(self.evidence)}.")
        lines += [f"Also: {each}" for each in self.also]
        if self.strategies:
            lines.append(f"Try: {', '.join(self.strategies)}.")
        return "\n".join(lines)


MOST_EVIDENCE = 3
"""More numbers than this make replies worse, not better."""

_ALSO = 1  # a second diagnosis helps, a third distracts

STRATEGIES: dict[Bottleneck, tuple[str, ...]] = {
    Bottleneck.UNCOALESCED: ("coalesced-access", "shared-transpose", "vector-loads"),
    Bottleneck.BANK_CONFLICTS: ("padded-shared", "swizzled-shared"),
    Bottleneck.SPILLS: ("launch-bounds", "occupancy-balance", "row-in-shared"),
    Bottleneck.LOW_OCCUPANCY: ("occupancy-balance", "block-size", "launch-bounds"),
    Bottleneck.BANDWIDTH: ("kernel-fusion", "row-in-registers", "streaming-stores"),
    Bottleneck.COMPUTE: ("tensor-cores", "split-product", "strength-reduction", "fast-intrinsics"),
    Bottleneck.PARALLELISM: ("split-k", "split-rows", "two-stage-reduction", "warp-per-row"),
    Bottleneck.LATENCY: ("vector-loads", "independent-chains", "async-copy"),
    Bottleneck.LAUNCH: ("single-kernel-launch", "small-problem-one-block", "kernel-fusion"),
    Bottleneck.UNKNOWN: (),
}
"""Strategies for a GPU."""

CPU_STRATEGIES: dict[Bottleneck, tuple[str, ...]] = {
    Bottleneck.NOT_VECTORISED: ("simd", "multiple-accumulators"),
    Bottleneck.ONE_THREAD: ("parallel-rows", "static-chunks", "collapsed-loops"),
    Bottleneck.BANDWIDTH: ("non-temporal-stores", "fused-passes", "cache-blocking"),
    Bottleneck.COMPUTE: ("register-tile", "packed-panels", "vector-exp"),
    Bottleneck.LATENCY: ("cache-blocking", "software-prefetch", "multiple-accumulators"),
    Bottleneck.LAUNCH: ("serial-when-small", "one-parallel-region"),
    Bottleneck.UNKNOWN: (),
}
"""Strategies for a CPU."""


def compose_digest(
    diagnoses: Sequence[Diagnosis], *, source: str, workload: str = "", kernel: str = "", seconds: float = 0.0
) -> Digest:
    """The digest of the strongest diagnosis, by rank, then weight; the next one is mentioned in a line."""
    if not diagnoses:
        raise ValueError("a digest needs at least one diagnosis")
    first, *others = sorted(diagnoses, key=lambda each: (each.rank, -each.weight))
    rest = [each for each in others if each.rank == first.rank or each.rank is Rank.WASTE][:_ALSO]
    names = dict.fromkeys(name for each in (first, *rest) for name in each.strategies)
    return Digest(
        bottleneck=first.bottleneck,
        sentence=first.sentence,
        evidence=first.evidence[:MOST_EVIDENCE],
        strategies=tuple(names),
        also=tuple(f"{each.bottleneck.value} ({each.evidence[0]})." for each in rest if each.evidence),
        source=source,
        workload=workload,
        kernel=kernel,
        seconds=seconds,
    )


NEAR = 0.75  # share of the hardware limit above which there is little to gain
_SPILLED_BYTES = 64  # per thread; below this, the compiler spills only a value or two


def longest_workload(evaluation: Evaluation) -> WorkloadResult:
    """The workload with the longest latency."""
    return max(evaluation.workloads, key=lambda each: each.latency_ms)


def evaluation_diagnoses(problem: Problem, evaluation: Evaluation) -> tuple[Diagnosis, ...]:
    """At least one diagnosis for a valid candidate; none for others."""
    return tuple(_diagnoses(problem, evaluation)) if evaluation.workloads else ()


def workload_zone(problem: Problem, workload: str) -> str:
    """The roofline zone of one workload; that of the problem if it is not known."""
    return next((bound.zone for bound in problem.bounds if bound.workload == workload), problem.zone)


def _diagnoses(problem: Problem, evaluation: Evaluation) -> Iterator[Diagnosis]:
    result = longest_workload(evaluation)
    table = CPU_STRATEGIES if problem.kind == "cpu" else STRATEGIES
    zone, share = workload_zone(problem, result.workload), result.share_of_floor
    reached = f"{whole_percent(share)} of the hardware limit"
    rate = quantity(1e3 * result.bytes / result.latency_ms, "B/s") + " of useful traffic"
    spilling = max(evaluation.resources, key=lambda each: each.spill_bytes, default=None)
    if spilling is not None and spilling.spill_bytes >= _SPILLED_BYTES:
        yield Diagnosis(
            Bottleneck.SPILLS,
            "Values that do not fit into registers are kept in local memory.",
            (
                f"{spilling.spill_bytes} bytes of spill stores and loads in {spilling.kernel}",
                f"{spilling.registers} registers a thread",
                reached,
            ),
            STRATEGIES[Bottleneck.SPILLS],
            Rank.WASTE,
            1.0,
        )
    if share >= NEAR:
        kind = Bottleneck.COMPUTE if zone == Zone.COMPUTE else Bottleneck.BANDWIDTH
        words = "fewer operations" if kind is Bottleneck.COMPUTE else "moving fewer bytes"
        sentence = f"It is close to the hardware limit: only {words} would make it faster."
        yield Diagnosis(kind, sentence, (reached, rate), table[kind], Rank.LIMIT_REACHED, share)
    elif zone == Zone.LATENCY:
        yield Diagnosis(
            Bottleneck.LAUNCH,
            "There is so little work that the launch takes as long as the work.",
            (f"the work itself needs {1e3 * result.floor_ms:.2g} µs, the call takes {1e3 * result.latency_ms:.3g} µs",),
            table[Bottleneck.LAUNCH],
            Rank.IDLE,
            1.0,
        )
    yield Diagnosis(
        Bottleneck.LATENCY,
        "It is far from the hardware limit; without counters the cause is unknown.",
        (reached, rate),
        table[Bottleneck.LATENCY],
        Rank.UNCLEAR,
        0.0,
    )
