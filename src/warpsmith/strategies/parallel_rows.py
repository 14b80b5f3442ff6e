"""Advice and a template's switch: share rows between threads."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="parallel-rows",
    title="Share rows between threads",
    backends=("cpu",),
    zones=(),
    families=("elementwise", "row_reduction", "matmul"),
    advice=(
        "Put `#pragma omp parallel for schedule(static)` before the loop over independent rows (or blocks of "
        "a long array), so that each core has a contiguous part."
    ),
    effect=(
        "Close to the number of cores for work bound by arithmetic; less where one core already takes most of "
        "the memory bandwidth. Below some ten thousand elements starting the threads costs more than it "
        "brings."
    ),
    example="""\
#pragma omp parallel for schedule(static)
for (int64_t row = 0; row < rows; ++row) one_row(row);
""",
)
