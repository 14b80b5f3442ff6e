"""Advice and a template's switch: vectorise the loop along a row."""

from __future__ import annotations

from warpsmith.core.strategy import Parameter, Strategy

PLUGIN = Strategy(
    name="simd",
    title="Vectorise the loop along a row",
    backends=("cpu",),
    zones=(),
    families=("elementwise", "row_reduction", "full_reduction", "matmul"),
    advice=(
        "Put `#pragma omp simd` (with `reduction` where there is one) before the innermost loop: it allows "
        "the compiler to reorder sums, which it may not do by itself. Avoid branches and library calls in the "
        "loop. Ask for 512-bit vectors where the machine has them."
    ),
    effect=("Up to the number of lanes, 8 to 16 for float, while data comes from a cache."),
    example="""\
#pragma omp simd reduction(+ : sum)
for (int64_t k = 0; k < cols; ++k) sum += x[k];
""",
    parameters=(Parameter("width", ("512", "256")),),
    excludes=("unroll",),
)
