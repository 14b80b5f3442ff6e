"""A digest from what an evaluation knows anyway: times, floors, and what the compiler says of registers.

Used where no profiler may look. It can tell a kernel at its limit from one that is far from it, and it sees spills; why
a kernel in between waits, it cannot tell, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from warpsmith.core.evaluation import Evaluation, WorkloadResult
from warpsmith.core.search import Problem
from warpsmith.evaluate.profiling.digest import CPU_STRATEGIES, STRATEGIES, Bottleneck, Suspect, amount, percent
from warpsmith.evaluate.profiling.rules import IDLE, REACHED, REST, WASTE
from warpsmith.hardware.roofline import Zone

NEAR = 0.75
"""Of the speed of light: what is left is less than a third, and most of it is out of reach."""

SPILLED_BYTES = 64
"""Stores and loads a thread: below this the compiler has put aside a value or two."""


def longest(evaluation: Evaluation) -> WorkloadResult:
    """The workload that an optimiser should look at."""
    return max(evaluation.workloads, key=lambda each: each.latency_ms)


def suspects(problem: Problem, evaluation: Evaluation) -> tuple[Suspect, ...]:
    """At least one for a valid candidate; none for others."""
    return tuple(_suspects(problem, evaluation)) if evaluation.workloads else ()


def zone_of(problem: Problem, workload: str) -> str:
    """Of one workload; the problem's own where it is not known."""
    return next((bound.zone for bound in problem.bounds if bound.workload == workload), problem.zone)


def _suspects(problem: Problem, evaluation: Evaluation) -> Iterator[Suspect]:
    result = longest(evaluation)
    table = CPU_STRATEGIES if problem.kind == "cpu" else STRATEGIES
    zone, share = zone_of(problem, result.workload), result.share_of_floor
    reached = f"{percent(share)} of the speed of light"
    rate = amount(1e3 * result.bytes / result.latency_ms, "B/s") + " of useful traffic"
    spilling = max(evaluation.resources, key=lambda each: each.spill_bytes, default=None)
    if spilling is not None and spilling.spill_bytes >= SPILLED_BYTES:
        yield Suspect(
            Bottleneck.SPILLS,
            "Values that do not fit into registers are kept in local memory.",
            (
                f"{spilling.spill_bytes} bytes of spill stores and loads in {spilling.kernel}",
                f"{spilling.registers} registers a thread",
                reached,
            ),
            STRATEGIES[Bottleneck.SPILLS],
            WASTE,
            1.0,
        )
    if share >= NEAR:
        kind = Bottleneck.COMPUTE if zone == Zone.COMPUTE else Bottleneck.BANDWIDTH
        words = "fewer operations" if kind is Bottleneck.COMPUTE else "moving fewer bytes"
        sentence = f"It is close to what the hardware allows: only {words} would make it faster."
        yield Suspect(kind, sentence, (reached, rate), table[kind], REACHED, share)
    elif zone == Zone.LATENCY:
        yield Suspect(
            Bottleneck.LAUNCH,
            "There is so little work that starting it costs as much as doing it.",
            (f"the work itself needs {1e3 * result.floor_ms:.2g} µs, the call takes {1e3 * result.latency_ms:.3g} µs",),
            table[Bottleneck.LAUNCH],
            IDLE,
            1.0,
        )
    yield Suspect(
        Bottleneck.LATENCY,
        "It is far from the hardware's limit; without counters, what it waits for is not known.",
        (reached, rate),
        table[Bottleneck.LATENCY],
        REST,
        0.0,
    )
