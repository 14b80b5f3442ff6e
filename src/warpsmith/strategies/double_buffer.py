"""Advice and a template's switch: load the next tile while computing on this one."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="double-buffer",
    title="Load the next tile while computing on this one",
    backends=("cuda",),
    zones=("compute", "middle"),
    families=("matmul",),
    advice=(
        "Keep two tiles of each operand in shared memory: load the next one into registers before the "
        "multiplication of the present one, store it to the other buffer afterwards, with one barrier per "
        "step."
    ),
    effect=("Hides the latency of global loads: 5 to 20 % for products with enough depth. Twice the shared memory."),
    example="""\
fetch(next);
compute(tile[now]);
store(tile[1 - now]);
__syncthreads();
""",
    needs=("shared-tile",),
    excludes=("async-copy",),
)
