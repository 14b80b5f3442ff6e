"""Advice: a convolution as a matrix product whose left side is never written."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="implicit-gemm",
    title="Convolution as an implicit matrix product",
    backends=("cuda", "triton"),
    zones=("compute", "middle"),
    families=("convolution",),
    advice=(
        "Treat the convolution as C[pixels, out channels] = A[pixels, in channels * window] * B and tile it like "
        "a matrix product, but compute the address of each element of A from its pixel and its window position "
        "while loading the tile into shared memory, with zeros outside the image. Precompute the offsets of the "
        "window positions; let neighbouring threads load neighbouring pixels. Then use register tiles, double "
        "buffering and, where the precision class allows it, tensor cores."
    ),
    effect=(
        "The method of choice for 3 x 3 and larger windows with 16 or more channels on both sides: 60-85 % of "
        "what a matrix product of the same size reaches. Poor for depthwise convolutions and for fewer than 8 "
        "input channels, where a direct kernel wins."
    ),
    example="""\
// Element (pixel, k) of the matrix that is never stored; stride 1, NCHW, one image, window s x s, padding p.
__device__ float element(const float* x, int pixel, int k, int h, int w, int out_w, int s, int p) {
  int channel = k / (s * s), dy = k / s % s, dx = k % s;
  int row = pixel / out_w + dy - p, col = pixel % out_w + dx - p;
  return row >= 0 && row < h && col >= 0 && col < w ? x[(channel * h + row) * w + col] : 0.0f;
}
""",
)
