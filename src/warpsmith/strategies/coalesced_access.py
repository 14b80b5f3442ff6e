"""Advice: neighbouring threads read neighbouring addresses."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="coalesced-access",
    title="Neighbouring threads, neighbouring addresses",
    backends=("cuda",),
    zones=("memory", "middle"),
    families=(),
    advice=(
        "Let threadIdx.x run along the contiguous (last) axis, so that the 32 lanes of a warp touch 128 "
        "consecutive bytes per load. Where the algorithm walks along another axis, let each thread own a column "
        "and loop over the rows, rather than let each thread own a row. Split an array of structures by loading "
        "it in order into shared memory first. Start every row's accesses at a multiple of 32 bytes where the row "
        "length allows it."
    ),
    effect=(
        "A strided load fetches a 32-byte sector for every 4 bytes used: up to 8 times the traffic, so up to 8 "
        "times slower. Nothing to gain where lanes already read consecutive words, or where the whole tensor "
        "stays in L2 and another unit is the limit."
    ),
    example="""\
// Sum over dimension 0 of a [rows, cols] matrix: lanes on cols, the loop on rows.
__global__ void column_sums(const float* x, float* out, int rows, int cols) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  float sum = 0.0f;
  for (int row = 0; row < rows; ++row) sum += x[(long long)row * cols + col];
  out[col] = sum;
}
""",
)
