"""Advice and a template's switch: maximum and sum of exponentials in one pass."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="online-softmax",
    title="Maximum and sum of exponentials in one pass",
    backends=("cuda", "cpu"),
    zones=("memory",),
    families=("row_reduction",),
    advice=(
        "Keep a running maximum and a running sum of exponentials relative to it; when the maximum grows, "
        "scale the sum by the exponential of the difference. Merge partial results the same way. That makes "
        "two passes (statistics, output) out of three."
    ),
    effect=(
        "Up to a third less traffic where the row does not fit into registers or a near cache. A few more "
        "exponentials; no gain where the row is kept on chip."
    ),
    example="""\
const float next = fmaxf(most, v);
sum = sum * expf(most - next) + expf(v - next);
most = next;
""",
)
