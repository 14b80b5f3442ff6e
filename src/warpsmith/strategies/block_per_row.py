"""Advice and a template's switch: one block for each row."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="block-per-row",
    title="One block for each row",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("row_reduction",),
    advice=(
        "Give every row to one block: its threads walk the row side by side, so that accesses coalesce, and "
        "combine their partial results through shared memory."
    ),
    effect=(
        "The usual form for rows of a thousand elements and more; with fewer, most threads idle. Needs at "
        "least as many rows as the device has multiprocessors, better several times as many."
    ),
    example="""\
for (int64_t k = threadIdx.x; k < cols; k += THREADS) sum += x[blockIdx.x * cols + k];
sum = block_sum(sum);
""",
    excludes=("warp-per-row",),
)
