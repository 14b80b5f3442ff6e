"""Advice and a template's switch: load through the read-only path."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="read-only-loads",
    title="Load through the read-only path",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("elementwise", "row_reduction", "full_reduction"),
    advice=(
        "Load inputs with __ldg, and mark pointers const __restrict__, so that the compiler may use the non- "
        "coherent path and reorder loads freely."
    ),
    effect=(
        "Small; it matters where the compiler could not prove that inputs and outputs do not overlap and "
        "therefore serialised loads behind stores."
    ),
    example="""\
const float4 v = __ldg(reinterpret_cast<const float4*>(x) + i);
""",
)
