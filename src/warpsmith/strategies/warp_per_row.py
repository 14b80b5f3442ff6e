"""Advice and a template's switch: one warp for each row."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="warp-per-row",
    title="One warp for each row",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("row_reduction",),
    advice=(
        "Give every row to one warp and put several rows into a block. Reductions then need shuffles only: no "
        "shared memory and no block-wide barrier."
    ),
    effect=(
        "Best for rows of up to one or two thousand elements, where a whole block has too little to do and "
        "barriers dominate. Worse for long rows: one warp has too few bytes in flight."
    ),
    example="""\
const int64_t row = int64_t(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
for (int64_t k = threadIdx.x % 32; k < cols; k += 32) sum += x[row * cols + k];
""",
    needs=("warp-shuffle-reduction",),
    excludes=("block-per-row",),
)
