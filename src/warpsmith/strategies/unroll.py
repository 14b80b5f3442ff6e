"""Advice and a template's switch: unroll the innermost loop."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="unroll",
    title="Unroll the innermost loop",
    backends=("cuda", "cpu"),
    zones=(),
    families=("elementwise", "row_reduction", "full_reduction", "matmul"),
    advice=(
        "Unroll the innermost loop by a small factor, with all loads of one round before the arithmetic, so "
        "that several independent memory accesses and operations are in flight per thread."
    ),
    effect=(
        "Hides latency where there is too little parallelism otherwise. Costs registers; past a factor of "
        "eight it rarely helps."
    ),
    example="""\
#pragma unroll
for (int u = 0; u < UNROLL; ++u) v[u] = x[i + u * stride];
""",
    parameters=(Parameter("factor", ("4", "2", "8", "12")),),
)
