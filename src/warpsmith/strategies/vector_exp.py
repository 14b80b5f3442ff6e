"""Advice and a template's switch: an exponential that vectorises."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="vector-exp",
    title="An exponential that vectorises",
    backends=("cpu",),
    zones=(),
    families=("elementwise", "row_reduction", "full_reduction", "matmul"),
    advice=(
        "Replace expf, tanhf, erff and logf by branch-free polynomials: split x into n ln 2 + r, evaluate a "
        "polynomial in r with fused multiply-adds, and put n into the exponent bits. A loop with a library "
        "call is not vectorised; this one is."
    ),
    effect=("Five to ten times on softmax, GELU and the like, because the library call is where the time goes."),
    example="""\
const float n = rintf(x * 1.44269504f);
const float r = x - n * 0.69314718f;
return polynomial(r) * bit_cast<float>((int(n) + 127) << 23);
""",
)
