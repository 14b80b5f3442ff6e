"""Advice: mean and variance in one reading, without cancellation."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="one-pass-variance",
    title="Mean and variance in one pass",
    backends=("cuda", "cpu"),
    zones=("memory", "middle"),
    families=("row_reduction", "normalisation"),
    advice=(
        "Read the row once for both moments. Subtract a value close to the mean first (the row's first element "
        "will do) and sum the differences and their squares, or use Welford's update per thread and Chan's "
        "formula to merge threads. Never use E[x^2] - E[x]^2 on raw values: it cancels where the mean is large, "
        "and fails the error check. Where the row fits registers or shared memory, two passes over the copy on "
        "chip are better still."
    ),
    effect=(
        "Saves one of three readings of the row: about 1.3 times for norms over rows too long to stay on chip. "
        "Nothing where the row is kept on chip between the passes."
    ),
    example="""\
struct Moments { float count, mean, m2; };
__host__ __device__ inline Moments merge(Moments a, Moments b) {  // Chan's formula; count must not be 0 in both
  float count = a.count + b.count, delta = b.mean - a.mean;
  return {count, a.mean + delta * b.count / count, a.m2 + b.m2 + delta * delta * a.count * b.count / count};
}
__host__ __device__ inline float variance(Moments m) { return m.m2 / m.count; }
""",
)
