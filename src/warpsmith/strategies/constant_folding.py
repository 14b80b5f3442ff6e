"""Advice: sizes and numbers the task fixes are known to the compiler."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="constant-folding",
    title="Make fixed sizes compile-time constants",
    backends=("cuda", "cpu"),
    zones=(),
    families=(),
    advice=(
        "Use the constants of namespace task (axes that never change, numbers of the operator) as template "
        "arguments, array extents and loop bounds, so that loops unroll, divisions become multiplications and "
        "tail tests vanish. Where an axis takes a few known values, make the kernel a template over it and choose "
        "in launch, with a general version for any other value. Compute scale factors such as 1.0f / cols once on "
        "the host."
    ),
    effect=(
        "5-30 % in kernels with short inner loops or index arithmetic (convolution windows, small matrices, "
        "multi-dimensional indices), because unrolled loops keep their data in registers. Next to nothing for "
        "long streaming loops. Each instance costs compile time and code size."
    ),
    example="""\
template <int COLS> __global__ void row_sum(const float* x, float* out) {
  float v[COLS];  // in registers, because every index below is known
  for (int i = 0; i < COLS; ++i) v[i] = x[(long long)threadIdx.x * COLS + i];
  float sum = 0.0f;
  for (int i = 0; i < COLS; ++i) sum += v[i];
  out[threadIdx.x] = sum;
}
// Host: if (cols == 8) row_sum<8><<<...>>>(x, out); else if (cols == 16) row_sum<16><<<...>>>(x, out); else general...
""",
)
