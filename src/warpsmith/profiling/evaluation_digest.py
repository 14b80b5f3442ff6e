"""Diagnoses from the figures of an evaluation: times, floors, and the compiler's figures on registers.

Used without a profiler. These figures show whether a kernel is near its limit and whether it spills registers; they do
not show what a kernel waits for.
"""

from __future__ import annotations

from collections.abc import Iterator

from warpsmith.hardware.roofline import Zone
from warpsmith.model.brief import Problem
from warpsmith.model.evaluation import Evaluation, WorkloadResult
from warpsmith.model.numbers import quantity, whole_percent
from warpsmith.profiling.digest import CPU_STRATEGIES, STRATEGIES, Bottleneck, Diagnosis, Rank

NEAR = 0.75
"""Share of the hardware limit above which there is little to gain."""

SPILLED_BYTES = 64
"""Per thread; below this, the compiler spills only a value or two."""


def longest_workload(evaluation: Evaluation) -> WorkloadResult:
    """The workload with the longest latency."""
    return max(evaluation.workloads, key=lambda each: each.latency_ms)


def diagnoses(problem: Problem, evaluation: Evaluation) -> tuple[Diagnosis, ...]:
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
    if spilling is not None and spilling.spill_bytes >= SPILLED_BYTES:
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
