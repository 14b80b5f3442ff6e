"""Advice: a row per block, scanned in registers."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="block-scan",
    title="Prefix sums by one block per row",
    backends=("cuda",),
    zones=("memory",),
    families=("scan",),
    advice=(
        "Give each row to one block and walk it in tiles of threads * 4 elements: load float4 per thread, scan in "
        "registers, scan the threads' totals by warp (shuffles), scan the warps' totals by the first warp through "
        "shared memory, add both offsets and the total carried from earlier tiles, and store. cub::BlockScan does "
        "the middle part. Load the next tile before the barrier of this one. For a scan along an outer axis give "
        "each thread a column instead: no cooperation needed."
    ),
    effect=(
        "70-90 % of the bandwidth for rows of a thousand elements and more, when there are at least as many rows "
        "as SMs; with fewer rows most of the device is idle: use a single-pass scan with look-back. One thread "
        "per row is 10-50 times slower."
    ),
    example="""\
__global__ void scan_rows(const float* x, float* out, int cols) {  // 256 threads
  using Scan = cub::BlockScan<float, 256>;
  __shared__ typename Scan::TempStorage storage;
  float carried = 0.0f;
  for (int base = 0; base < cols; base += 256) {
    int i = base + threadIdx.x;
    float v = i < cols ? x[(long long)blockIdx.x * cols + i] : 0.0f, sum, total;
    Scan(storage).InclusiveSum(v, sum, total);
    if (i < cols) out[(long long)blockIdx.x * cols + i] = carried + sum;
    carried += total, __syncthreads();
  }
}
""",
)
