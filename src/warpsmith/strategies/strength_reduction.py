"""Advice: costly operations out of the inner loop."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="strength-reduction",
    title="Cheap operations in the inner loop",
    backends=("cuda", "cpu"),
    zones=("compute", "middle", "latency"),
    families=(),
    advice=(
        "Replace what is costly by what is cheap and equal: one reciprocal outside the loop and a multiplication "
        "inside it, pointers that are advanced instead of i * stride + j, shifts and masks for divisions by "
        "powers of two, x * x for pow(x, 2), rsqrt for 1 / sqrt, fmaf for a * b + c, float literals (0.5f) so "
        "that no double creeps in. Integer division and modulo by a run-time number cost 20-40 instructions on a "
        "GPU: carry row and column along instead."
    ),
    effect=(
        "1.1 to 2 times where the profile shows arithmetic or integer instructions as the limit: element-wise "
        "kernels with pow or division, index-heavy kernels. A stray double constant alone can cost a factor of 10 "
        "on a GPU. Nothing where memory is the limit."
    ),
    example="""\
__global__ void normalise(const float* x, const float* norm, float* out, int cols) {
  const float scale = 1.0f / norm[blockIdx.x];  // one division per row
  const float* in = x + (long long)blockIdx.x * cols;
  float* to = out + (long long)blockIdx.x * cols;
  for (int i = threadIdx.x; i < cols; i += blockDim.x) to[i] = in[i] * scale;
}
""",
)
