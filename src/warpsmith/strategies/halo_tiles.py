"""Advice: a tile and its rim in shared memory serve all windows in it."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="halo-tiles",
    title="Tiles with a halo for windows",
    backends=("cuda", "cpu"),
    zones=("memory", "middle"),
    families=("convolution", "pooling"),
    advice=(
        "Give a block an output tile (32 x 8, say) and load the input it needs, the tile plus a rim of (window - "
        "1) * dilation elements, once into shared memory, with zeros (or -infinity for max pooling) outside the "
        "image. After one synchronisation every window reads shared memory only. For several input channels loop "
        "over them with two buffers. On the CPU do the same by keeping the few rows of a window in the "
        "first-level cache."
    ),
    effect=(
        "A k x k window read from global memory asks for each input k * k times; caches catch much of it, so "
        "expect 1.3-3 times for 3 x 3 to 7 x 7 windows with stride 1. Nothing for 1 x 1 windows or where stride "
        "equals the window: then no input is used twice."
    ),
    example="""\
__global__ void max3x3(const float* x, float* out, int h, int w) {  // blockDim (32, 8), stride 1, padding 1
  __shared__ float tile[10][34];
  int left = blockIdx.x * 32 - 1, top = blockIdx.y * 8 - 1, me = threadIdx.y * 32 + threadIdx.x;
  for (int i = me; i < 340; i += 256) {
    int r = top + i / 34, c = left + i % 34;
    tile[i / 34][i % 34] = r >= 0 && r < h && c >= 0 && c < w ? x[r * w + c] : -INFINITY;
  }
  __syncthreads();
  float best = -INFINITY;
  for (int i = 0; i < 9; ++i) best = fmaxf(best, tile[threadIdx.y + i / 3][threadIdx.x + i % 3]);
  if (top + 1 + threadIdx.y < h && left + 1 + threadIdx.x < w)
    out[(top + 1 + threadIdx.y) * w + left + 1 + threadIdx.x] = best; }
""",
)
