"""Advice and a template's switch: keep the row in registers between passes."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="row-in-registers",
    title="Keep the row in registers between passes",
    backends=("cuda",),
    zones=("memory",),
    families=("row_reduction",),
    advice=(
        "Load the row once, each thread a fixed number of elements into an array with constant indices (so "
        "that it stays in registers), and let all passes work on that array; write the result at the end. "
        "Make the array's length a template parameter and pick it at launch from the row length; read the row "
        "again from memory where it is too long."
    ),
    effect=(
        "Two or three passes over memory become one: for softmax and normalisations the largest single gain. "
        "Limited by registers: about 64 values per thread."
    ),
    example="""\
float kept[COUNT];
#pragma unroll
for (int c = 0; c < COUNT; ++c) kept[c] = x[row * cols + c * THREADS + threadIdx.x];
""",
    excludes=("row-in-shared",),
)
