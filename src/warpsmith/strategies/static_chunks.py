"""Advice and a template's switch: choose how many items a thread takes at a time."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="static-chunks",
    title="Choose how many items a thread takes at a time",
    backends=("cpu",),
    zones=(),
    families=("elementwise", "row_reduction", "matmul"),
    advice=(
        "Give threads chunks of a fixed number of items in turn: `schedule(static, CHUNK)`. Small chunks even "
        "out rows of different cost, large ones keep pages and cache lines apart."
    ),
    effect=("Some per cent; more where a thread's neighbour disturbs it or pages are spread over memory nodes."),
    example="""\
#pragma omp parallel for schedule(static, CHUNK)
""",
    parameters=(Parameter("chunk", ("16", "1", "4", "64")),),
    needs=("parallel-rows",),
)
