"""Advice and a template's switch: write results past the caches."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="non-temporal-stores",
    title="Write results past the caches",
    backends=("cpu",),
    zones=("memory",),
    families=("elementwise", "row_reduction"),
    advice=(
        "Compute a block into a small buffer on the stack and copy it out with streaming stores, which do not "
        "fetch the line that is about to be overwritten."
    ),
    effect=(
        "Saves a third of the traffic of a copy-like kernel on arrays much larger than the last-level cache; "
        "a loss where the result would have stayed in a cache."
    ),
    example="""\
_mm_stream_si128(reinterpret_cast<__m128i*>(out + k), block);
""",
)
