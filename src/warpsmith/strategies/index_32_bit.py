"""Advice: 32-bit indices inside, 64-bit offsets once."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="index-32-bit",
    title="Indices of 32 bits in inner loops",
    backends=("cuda",),
    zones=("compute", "middle", "memory"),
    families=(),
    advice=(
        "GPUs have no 64-bit integer unit: every 64-bit multiplication is several instructions. Add the 64-bit "
        "row offset to the pointer once, then index inside the row with int (or unsigned for divisions). For "
        "whole tensors test in launch that they have fewer than 2^31 elements and call the 32-bit instance, with "
        "a 64-bit one for the rest. Mind blockIdx.x * blockDim.x, which is 32 bits wide, when tensors are larger."
    ),
    effect=(
        "5-15 % in index-heavy kernels (convolution, permutation, broadcasting over several axes), and 2-8 "
        "registers fewer. Nothing for kernels that compute one address and stream on."
    ),
    example="""\
template <typename Index> __global__ void scale(const float* x, float* out, Index n, float a) {
  Index step = (Index)gridDim.x * blockDim.x;
  for (Index i = blockIdx.x * (Index)blockDim.x + threadIdx.x; i < n; i += step) out[i] = a * x[i];
}
// Host: n < (1ll << 30) ? scale<int><<<...>>>(x, out, (int)n, a) : scale<long long><<<...>>>(x, out, n, a);
""",
)
