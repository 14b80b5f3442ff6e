"""Advice: neighbouring windows share all but one element."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="sliding-window",
    title="Slide the window",
    backends=("cuda", "cpu"),
    zones=("memory", "middle", "compute"),
    families=("pooling", "convolution"),
    advice=(
        "Neighbouring windows overlap in all but one row or column. Split separable windows (sum, average, "
        "maximum) into a pass along the rows and one along the columns: 2 k operations instead of k * k. Let a "
        "thread walk down a column with the last k row results in registers. Recompute running sums every some "
        "dozen steps, or add windows up directly: adding and subtracting for ever collects rounding errors."
    ),
    effect=(
        "k / 2 times fewer operations for k x k pooling: 1.5-3 times for windows of 5 and more at stride 1. No "
        "gain where stride equals the window, the usual 2 x 2 pooling, which is a plain streaming kernel."
    ),
    example="""\
template <int K> __device__ void column_max(const float* x, float* out, int h, int w) {  // K row maxima in registers
  float last[K];
  for (int r = 0; r < h; ++r) {
    for (int k = 0; k + 1 < K; ++k) last[k] = last[k + 1];
    last[K - 1] = x[r * w];
    float best = last[0];
    for (int k = 1; k < K; ++k) best = fmaxf(best, last[k]);
    if (r + 1 >= K) out[(r + 1 - K) * w] = best;
  }
}
""",
)
