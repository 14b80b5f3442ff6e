"""Advice and a template's switch: do in one loop what one loop can do."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="fused-passes",
    title="Do in one loop what one loop can do",
    backends=("cpu",),
    zones=("memory", "latency", "middle", "compute"),
    families=("row_reduction",),
    advice=(
        "Compute all reductions that do not wait for each other in one loop over the row, and keep costly "
        "intermediate values (exponentials) in the output row for the last loop instead of computing them "
        "again."
    ),
    effect=("Fewer passes over the cache and half the exponentials of a softmax."),
    example="""\
sum += (out[k] = exponential(x[k] - most));
""",
)
