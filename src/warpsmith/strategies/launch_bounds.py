"""Advice: the compiler knows the block size and how many blocks are to be resident."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="launch-bounds",
    title="Tell the compiler the block size",
    backends=("cuda",),
    zones=("middle", "compute", "memory"),
    families=(),
    advice=(
        "Write __launch_bounds__(threads, blocks_per_sm) on the kernel with the block size it is really launched "
        "with. Without it the compiler allows for 1024 threads per block and caps registers at 64. Lower the "
        "second number where the compiler reports spills; raise it where registers alone keep a second block from "
        "fitting. Launching with more threads than declared fails."
    ),
    effect=(
        "Removes spills in kernels with big register tiles (10-30 %, more in matrix products with 8 x 8 results "
        "per thread); a second number that fits one more block gives 5-15 % in memory-bound kernels. No effect on "
        "kernels that use fewer than about 32 registers."
    ),
    example="""\
__global__ void __launch_bounds__(256, 2) update(const float* x, float* out, int n) {  // <= 128 registers each
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i < n) out[i] = x[i] * x[i];
}
""",
)
