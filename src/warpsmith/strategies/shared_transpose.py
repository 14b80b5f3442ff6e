"""Advice: both sides of a transposition are coalesced through shared memory."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="shared-transpose",
    title="Transpose through a shared tile",
    backends=("cuda",),
    zones=("memory",),
    families=("transpose",),
    advice=(
        "Move a 32 x 32 tile: read it row by row (coalesced) into shared memory declared [32][33], synchronise, "
        "and write it out row by row of the transposed matrix (coalesced again). The extra column spreads a "
        "column over all 32 banks. Use 32 x 8 threads and 4 rows per thread. The same tile serves permutations "
        "that move the last axis, and a product whose operand lies the wrong way round."
    ),
    effect=(
        "A plain transposition reaches 10-25 % of the bandwidth, because one of its two sides is strided; the "
        "tile reaches 80-95 %. Without the extra column the reads of a column are 32-way bank conflicts and half "
        "of that is lost again. Does not help where the last axis stays in its place: then whole rows can be "
        "copied."
    ),
    example="""\
__global__ void transpose(const float* in, float* out, int rows, int cols) {  // blockDim (32, 8)
  __shared__ float tile[32][33];
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (row + j < rows && col < cols) tile[threadIdx.y + j][threadIdx.x] = in[(long long)(row + j) * cols + col];
  __syncthreads();
  col = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
  for (int j = 0; j < 32; j += 8)
    if (row + j < cols && col < rows) out[(long long)(row + j) * rows + col] = tile[threadIdx.x][threadIdx.y + j];
}
""",
)
