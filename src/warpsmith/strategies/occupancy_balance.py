"""Advice: enough warps to hide latency, and no more than that."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="occupancy-balance",
    title="Enough warps, not the most warps",
    backends=("cuda",),
    zones=("memory", "middle", "compute"),
    families=(),
    advice=(
        "Work out what limits resident warps: registers (65536 per SM), shared memory (164 KiB on A100, 228 KiB "
        "on H100) or the block size. A memory-bound kernel needs about 40 KiB of loads in flight per SM: reach "
        "that with more warps, or with more independent loads per thread. A compute-bound kernel with long "
        "independent chains runs best at 25-50 % occupancy with many registers. Above 48 KiB of shared memory per "
        "block call cudaFuncSetAttribute with cudaFuncAttributeMaxDynamicSharedMemorySize."
    ),
    effect=(
        "Going from 25 % to 50 % occupancy often gives 20-50 % in a memory-bound kernel with one load per thread; "
        "from 50 % to 100 % rarely more than 5 %. Forcing occupancy up by capping registers causes spills, which "
        "cost more than it gains."
    ),
    example="""\
__global__ void worker(float* data) { extern __shared__ float scratch[]; scratch[threadIdx.x] = data[threadIdx.x]; }
int resident_blocks(int threads, int shared_bytes) {
  int blocks = 0;
  cudaFuncSetAttribute(worker, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, worker, threads, shared_bytes);
  return blocks;
}
""",
)
