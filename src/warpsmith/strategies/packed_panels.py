"""Advice and a template's switch: copy operands into the order in which they are read."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="packed-panels",
    title="Copy operands into the order in which they are read",
    backends=("cpu",),
    zones=("compute", "middle"),
    families=("matmul",),
    advice=(
        "Before multiplying, copy B into panels as wide as the register tile and A into strips as high, each "
        "stored in the order of the innermost loop, padded with zeros; keep them in the workspace."
    ),
    effect=(
        "The innermost loop reads memory straight through whatever way the operands were stored, with no edge "
        "cases. Pays for products whose sides are all at least about a hundred."
    ),
    example="""\
panel[(p * depth + k) * WIDTH + j] = b[k * n + p * WIDTH + j];
""",
)
