"""Advice and a template's switch: keep the row in shared memory between passes."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="row-in-shared",
    title="Keep the row in shared memory between passes",
    backends=("cuda",),
    zones=("memory",),
    families=("row_reduction",),
    advice=(
        "Load the row into dynamic shared memory in the first pass and let all later passes read it from "
        "there. Ask for more than 48 KiB with cudaFuncSetAttribute; read from global memory again where the "
        "row does not fit."
    ),
    effect=(
        "One pass over global memory for rows of up to about fifty thousand floats. Large rows leave room for "
        "one block per multiprocessor only, so give it many threads."
    ),
    example="""\
extern __shared__ float row[];
for (int k = threadIdx.x; k < cols; k += THREADS) { row[k] = x[k]; most = fmaxf(most, row[k]); }
""",
    excludes=("row-in-registers",),
)
