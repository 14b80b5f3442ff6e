"""Advice: some warps load while the others compute."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="warp-specialisation",
    title="Loader warps and computing warps",
    backends=("cuda",),
    zones=("compute", "middle"),
    families=("matmul", "attention", "convolution"),
    advice=(
        "Divide the block by warp: one warp (or one warp group of 128 threads) only fills shared-memory stages by "
        "cp.async or TMA, the others only compute on full stages. Give every stage two barriers: full (the loader "
        "arrives, consumers wait) and empty (consumers arrive, the loader waits). Use 3 or 4 stages. On Hopper "
        "move registers from loaders to consumers with setmaxnreg."
    ),
    effect=(
        "On Hopper 10-30 % over a well pipelined uniform kernel with WGMMA, because address arithmetic and "
        "waiting leave the computing warps; on Ampere seldom more than 5 %, where multi-stage cp.async issued by "
        "all warps does as well. Not worth its complexity in memory-bound kernels without reuse."
    ),
    example="""\
__global__ void pipeline(const float* x, float* out, int tiles) {  // 64 threads: warp 0 loads, warp 1 computes
  __shared__ float stage[2][32];
  int lane = threadIdx.x % 32;
  bool loader = threadIdx.x < 32;
  for (int t = 0; t <= tiles; ++t) {
    if (loader && t < tiles) stage[t % 2][lane] = x[t * 32 + lane];
    if (!loader && t > 0) out[(t - 1) * 32 + lane] = sqrtf(stage[(t - 1) % 2][lane]);
    __syncthreads();  // with more than two stages: one full and one empty mbarrier per stage instead
  }
}
""",
    least_arch=80,
)
