"""A digest: what holds a kernel back, the two or three numbers that prove it, and which strategies address it.

The noun and its wording, and the table from bottlenecks to the names of strategies in the catalogue. Which bottleneck
it is, is found by `rules` (GPU counters), `cpu` (a compiler's report) and `figures` (what an evaluation knows anyway).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Bottleneck(StrEnum):
    """What a kernel's time goes to."""

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


@dataclass(frozen=True)
class Suspect:
    """One thing that may hold the kernel back."""

    bottleneck: Bottleneck
    sentence: str  # what is wrong, without numbers
    evidence: tuple[str, ...]  # numbers with their meaning, the most telling first
    strategies: tuple[str, ...]  # names in the catalogue, the most promising first
    rank: int  # waste before a limit that is reached, a limit before what is merely idle
    weight: float  # within one rank: the share of the time it may explain


@dataclass(frozen=True)
class Digest:
    """What a proposer, or a person, is told about one candidate."""

    bottleneck: Bottleneck
    sentence: str
    evidence: tuple[str, ...]  # three at most
    strategies: tuple[str, ...]
    also: tuple[str, ...] = ()  # further suspects, one line each
    source: str = ""  # who says so: "Nsight Compute", "g++ 12.2.0"
    workload: str = ""
    kernel: str = ""  # the one it is about, where there are several
    seconds: float = 0.0  # what finding out has cost

    @property
    def text(self) -> str:
        """For a prompt and for a person alike."""
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

_ALSO = 1  # a second suspect is worth a line, a third is noise

STRATEGIES: dict[Bottleneck, tuple[str, ...]] = {
    Bottleneck.UNCOALESCED: ("coalesced-access", "shared-transpose", "vector-loads"),
    Bottleneck.BANK_CONFLICTS: ("padded-shared", "swizzled-shared"),
    Bottleneck.SPILLS: ("launch-bounds", "occupancy-balance", "row-in-shared"),
    Bottleneck.LOW_OCCUPANCY: ("occupancy-balance", "block-size", "launch-bounds"),
    Bottleneck.BANDWIDTH: ("kernel-fusion", "row-in-registers", "streaming-stores"),
    Bottleneck.COMPUTE: ("tensor-cores", "strength-reduction", "fast-intrinsics"),
    Bottleneck.PARALLELISM: ("split-k", "split-rows", "two-stage-reduction", "warp-per-row"),
    Bottleneck.LATENCY: ("vector-loads", "independent-chains", "async-copy"),
    Bottleneck.LAUNCH: ("single-kernel-launch", "small-problem-one-block", "kernel-fusion"),
    Bottleneck.UNKNOWN: (),
}
"""What helps on a GPU."""

CPU_STRATEGIES: dict[Bottleneck, tuple[str, ...]] = {
    Bottleneck.NOT_VECTORISED: ("simd", "multiple-accumulators"),
    Bottleneck.ONE_THREAD: ("parallel-rows", "static-chunks", "collapsed-loops"),
    Bottleneck.BANDWIDTH: ("non-temporal-stores", "fused-passes", "cache-blocking"),
    Bottleneck.COMPUTE: ("register-tile", "packed-panels", "vector-exp"),
    Bottleneck.LATENCY: ("cache-blocking", "software-prefetch", "multiple-accumulators"),
    Bottleneck.LAUNCH: ("serial-when-small", "one-parallel-region"),
    Bottleneck.UNKNOWN: (),
}
"""What helps on a CPU."""


def compose(
    suspects: Sequence[Suspect], *, source: str, workload: str = "", kernel: str = "", seconds: float = 0.0
) -> Digest:
    """The strongest suspect, and the next one in a line; by rank, then by weight."""
    if not suspects:
        raise ValueError("a digest needs at least one suspect")
    first, *others = sorted(suspects, key=lambda each: (each.rank, -each.weight))
    rest = [each for each in others if each.rank == first.rank or each.rank == 0][:_ALSO]
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


def percent(share: float) -> str:
    """A share of one, as people say it."""
    return f"{100 * share:.0f} %"


def amount(value: float, unit: str) -> str:
    """A rate or a size with a decimal prefix: 1.52 TB/s."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"
