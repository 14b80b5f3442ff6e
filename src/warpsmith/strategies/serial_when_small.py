"""Advice: one thread where starting more costs more."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="serial-when-small",
    title="Stay serial when the work is small",
    backends=("cpu",),
    zones=("latency",),
    families=(),
    advice=(
        "Use an if clause on the parallel loop: below some 10 000-50 000 elements of light arithmetic one "
        "vectorised thread is done before the others have woken up. Limit the number of threads (num_threads) so "
        "that each gets at least about 30 us of work. Workloads of different sizes can then share one kernel."
    ),
    effect=(
        "Saves 2-20 us of waking and joining threads: up to several times for tensors that fit the first-level "
        "cache. No effect on large tensors."
    ),
    example="""\
inline void scale(const float* x, float* out, long n, float a) {
#pragma omp parallel for simd schedule(static) if (n > 32768)
  for (long i = 0; i < n; ++i) out[i] = a * x[i];
}
""",
)
