"""Advice: one warp or block per small product."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="batched-small-matrices",
    title="A warp or block per small matrix",
    backends=("cuda", "cpu"),
    zones=("memory", "latency", "middle"),
    families=("matmul",),
    advice=(
        "With many products of sides up to 64, do not tile each one: give a whole product to one warp (sides up "
        "to 16) or one block (up to 64), load both matrices once into shared memory or registers with "
        "compile-time sizes, and compute with everything on chip. Put several small products into one block, so "
        "that it has 128 threads or more. On the CPU give whole products to threads, and keep the sums of a row "
        "in vector registers."
    ),
    effect=(
        "Such batches are memory-bound: each matrix read once is the limit, 3-10 times over a general tiled "
        "kernel whose 128 x 128 tiles are mostly empty. Not for sides above about 100."
    ),
    example="""\
__global__ void multiply16(const float* a, const float* b, float* c) {  // blockDim (16, 16): one product per block
  __shared__ float sa[16][17], sb[16][17];
  long long base = (long long)blockIdx.x * 256 + threadIdx.y * 16 + threadIdx.x;
  sa[threadIdx.y][threadIdx.x] = a[base], sb[threadIdx.y][threadIdx.x] = b[base];
  __syncthreads();
  float sum = 0.0f;
  for (int k = 0; k < 16; ++k) sum += sa[threadIdx.y][k] * sb[k][threadIdx.x];
  c[base] = sum;
}
""",
)
