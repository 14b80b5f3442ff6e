"""Advice: several sums at once hide the latency of each."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="independent-chains",
    title="Independent chains of arithmetic",
    backends=("cuda",),
    zones=("compute", "middle", "latency"),
    families=("full_reduction", "row_reduction", "matmul"),
    advice=(
        "A dependent multiply-add takes 4 cycles, a special function 20 and more, a load from memory 400-800. "
        "Break long chains of dependent steps: 4 to 8 partial sums or maxima per thread over interleaved "
        "elements, combined at the end; all loads of an iteration before their first use; a loop unrolled far "
        "enough for both. Different partial sums also reduce rounding error."
    ),
    effect=(
        "1.2-2 times in reductions and other loops with few warps per SM. Nothing at full occupancy in a "
        "bandwidth-limited kernel, where other warps fill the gaps."
    ),
    example="""\
__device__ float sum(const float* x, int n) {  // n % 4 == 0
  float a = 0.0f, b = 0.0f, c = 0.0f, d = 0.0f;
  for (int i = 0; i < n; i += 4) a += x[i], b += x[i + 1], c += x[i + 2], d += x[i + 3];
  return (a + b) + (c + d);
}
""",
)
