"""Advice: matrix times vector is a memory-bound reduction."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="skinny-products",
    title="Treat skinny products as reductions",
    backends=("cuda", "cpu"),
    zones=("memory", "latency"),
    families=("matmul",),
    advice=(
        "When one side of the product is 1 to 16, every element of the large matrix is used that few times: "
        "stream it once, coalesced, with vector loads, and forget tiles. Matrix times vector with row-major A: "
        "one warp (or block) per row, a dot product with the vector kept in shared memory or cache. With A "
        "transposed: a thread per column, split over rows, partial sums combined. For 2 to 16 columns keep that "
        "many sums per thread. Split long rows, so that all SMs have work."
    ),
    effect=(
        "80-95 % of the bandwidth, against 10-30 % for a general tiled product. Above about 32 columns arithmetic "
        "begins to count and tiling pays."
    ),
    example="""\
__global__ void matrix_vector(const float4* a, const float4* x, float* y, int rows, int quads) {  // a warp per row
  int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int i = lane; i < quads; i += 32) {
    float4 p = a[(long long)row * quads + i], q = x[i];
    sum += (p.x * q.x + p.y * q.y) + (p.z * q.z + p.w * q.w);
  }
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) y[row] = sum; }
""",
)
