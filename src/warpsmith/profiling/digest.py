"""A digest: what limits a kernel, the two or three numbers that prove it, and the strategies that address it.

Contains the digest, its wording, and the table from bottlenecks to strategies of the catalogue. The bottleneck itself
is found by `ncu_rules` (GPU counters), `cpu_report` (a compiler's report) and `evaluation_digest` (an evaluation).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum


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
