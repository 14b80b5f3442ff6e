"""Advice: the innermost loop runs along memory."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="loop-interchange",
    title="Innermost loop along the contiguous axis",
    backends=("cpu",),
    zones=("memory", "middle", "compute"),
    families=("matmul", "convolution", "transpose", "scan", "row_reduction"),
    advice=(
        "Order the loops so that the innermost one walks the last axis of what it reads and writes, and carries "
        "no sum from step to step: in a matrix product i, k, j (add a row of B, scaled, to a row of C) rather "
        "than i, j, k (a dot product with a strided column of B). When reducing along an outer axis, keep a row "
        "of running results and sweep the rows in order. The inner loop then vectorises and the prefetcher "
        "follows it."
    ),
    effect=(
        "3-20 times over a strided inner loop, which uses 4 of every 64 bytes fetched. Where the inner loop is "
        "already contiguous nothing is left; large matrix products then need blocking as well."
    ),
    example="""\
inline void multiply(const float* a, const float* b, float* c, long m, long n, long k) {
  for (long i = 0; i < m; ++i) {
    for (long j = 0; j < n; ++j) c[i * n + j] = 0.0f;
    for (long p = 0; p < k; ++p)
#pragma omp simd
      for (long j = 0; j < n; ++j) c[i * n + j] += a[i * k + p] * b[p * n + j];
  }
}
""",
)
