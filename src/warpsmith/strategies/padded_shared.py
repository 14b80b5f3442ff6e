"""Advice and a template's switch: pad rows of shared tiles."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="padded-shared",
    title="Pad rows of shared tiles",
    backends=("cuda",),
    zones=("compute", "middle"),
    families=("matmul",),
    advice=(
        "Make rows of a shared-memory tile a few elements longer than needed (4 floats keep vector loads "
        "aligned), so that threads that walk down a column hit different banks."
    ),
    effect=("Removes bank conflicts where a tile is written transposed; nothing where there are none."),
    example="""\
__shared__ float As[TK][TM + 4];
""",
    needs=("shared-tile",),
)
