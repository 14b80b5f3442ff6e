"""Advice: several outer loops make enough parallel work."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="collapsed-loops",
    title="Parallelise over several axes at once",
    backends=("cpu",),
    zones=("memory", "middle", "compute"),
    families=("convolution", "pooling", "matmul", "row_reduction", "attention", "transpose"),
    advice=(
        "When the outermost axis is shorter than the number of threads, or no multiple of it, parallelise over "
        "two or more axes with collapse(2) (or cut the flat range by hand), so that all threads get equal shares. "
        "Leave the innermost, contiguous loop out: it belongs to the vector unit. Where rows differ in cost use "
        "schedule(dynamic) with chunks of some 10 us."
    ),
    effect=(
        "With 6 images on 4 threads, 1.33 times (2 rounds become 1.5); with a batch of 1, as much as there are "
        "cores. Nothing where the outer axis already has hundreds of equal pieces."
    ),
    example="""\
inline void relu(const float* x, float* out, long batch, long channels, long pixels) {
#pragma omp parallel for collapse(2) schedule(static)
  for (long b = 0; b < batch; ++b)
    for (long c = 0; c < channels; ++c)
      for (long i = (b * channels + c) * pixels, end = i + pixels; i < end; ++i) out[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
""",
)
