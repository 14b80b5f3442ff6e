"""Advice and a template's switch: reduce with shuffles instead of shared memory."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="warp-shuffle-reduction",
    title="Reduce with shuffles instead of shared memory",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("row_reduction", "full_reduction"),
    advice=(
        "Combine partial results inside a warp with __shfl_xor_sync in five steps, and only one value per "
        "warp through shared memory."
    ),
    effect=("Two barriers per reduction instead of eight to ten: it counts for short rows and small problems."),
    example="""\
for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
""",
)
