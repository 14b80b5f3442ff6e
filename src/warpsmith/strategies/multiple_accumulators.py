"""Advice and a template's switch: several independent partial sums."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="multiple-accumulators",
    title="Several independent partial sums",
    backends=("cpu",),
    zones=("memory", "compute", "middle"),
    families=("row_reduction", "full_reduction"),
    advice=(
        "Keep two or four accumulators that do not depend on each other, each for its own stretch of the row, "
        "and combine them at the end."
    ),
    effect=(
        "Breaks the chain of dependent additions, whose latency otherwise limits the loop to one vector every "
        "four cycles. Also lowers the rounding error."
    ),
    example="""\
a0 += x[k]; a1 += x[quarter + k]; a2 += x[2 * quarter + k]; a3 += x[3 * quarter + k];
""",
    parameters=(Parameter("count", ("4", "2")),),
)
