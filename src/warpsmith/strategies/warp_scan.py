"""Advice: prefix sums by shuffles."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="warp-scan",
    title="Prefix sums inside a warp",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("scan", "selection"),
    advice=(
        "Scan 32 values by five __shfl_up_sync steps with distances 1, 2, 4, 8, 16: no shared memory, no barrier. "
        "Let each lane first scan 4 to 8 values of its own in registers (loaded as a float4), shuffle only the "
        "lanes' totals, and add the result back. Short rows (up to about 1024 elements) get one warp each, in a "
        "loop that carries the running total."
    ),
    effect=(
        "3-5 times over a scan through shared memory with a barrier per step. For rows longer than a few thousand "
        "elements use whole blocks. Needs all 32 lanes active: do not return early."
    ),
    example="""\
__device__ float inclusive_scan(float v) {
  int lane = threadIdx.x % 32;
  for (int d = 1; d < 32; d *= 2) {
    float other = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d) v += other;
  }
  return v;
}
""",
)
