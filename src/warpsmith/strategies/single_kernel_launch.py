"""Advice: one launch, nothing else, per call."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="single-kernel-launch",
    title="One launch per call",
    backends=("cuda", "triton"),
    zones=("latency",),
    families=(),
    advice=(
        "Do everything in one launch. Each further kernel costs 2-5 us, which is more than small problems "
        "compute. Replace a second pass by the last block to finish (it counts with an atomic), by a cluster, or "
        "by one block that does it all; fold clearing of an output into the kernel that writes it. Call no "
        "cudaMemsetAsync, no attribute queries and no occupancy calculation in launch where a constant will do."
    ),
    effect=(
        "Each launch saved is 2-5 us: 2-3 times for operators that take under 10 us. Means nothing for kernels of "
        "a millisecond, where a second small kernel is cheaper than atomics."
    ),
    example="""\
__global__ void mean(const float* x, float* out, int n) {  // <<<1, 1024>>>, n up to some 100 000
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += 1024) sum += x[i];
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  __shared__ float warps[32];
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = threadIdx.x < 32 ? warps[threadIdx.x] : 0.0f;
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x == 0) *out = sum / n;
}
""",
)
