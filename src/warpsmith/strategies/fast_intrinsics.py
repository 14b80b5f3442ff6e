"""Advice and a template's switch: use the hardware's approximate functions."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="fast-intrinsics",
    title="Use the hardware's approximate functions",
    backends=("cuda",),
    zones=("compute", "middle", "memory", "latency"),
    families=("elementwise", "row_reduction", "full_reduction", "matmul"),
    advice=(
        "Replace expf, logf, division and tanhf by __expf, __logf, __fdividef and tanh.approx, which take one "
        "or two instructions of the special function unit."
    ),
    effect=(
        "Large where special functions dominate (GELU, sigmoid, softmax in fast memory), nothing where memory "
        "does. Costs accuracy: about 2 to 3 more bits lost for __expf, about 1e-4 relative for tanh.approx; "
        "the check may refuse it in fp32."
    ),
    example="""\
y = __fdividef(x, 1.0f + __expf(-x));
""",
)
