"""Advice: many indices first, then many rows at once."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="gather-in-flight",
    title="Keep many gathered rows in flight",
    backends=("cuda",),
    zones=("memory", "latency"),
    families=("gather",),
    advice=(
        "Gathered addresses hang on loaded indices, two trips through memory in a row. Load indices for several "
        "rows ahead (a vector of them per thread, or 32 per warp handed round by shuffle), then issue all row "
        "loads before using any. Give each row to as many lanes as cover it with 16-byte loads: 8 lanes for 32 "
        "floats, a warp for 128. Check bounds as the reference does. For scattered sums, sort or group by target "
        "where there are many hits per target, else use atomics."
    ),
    effect=(
        "1.5-3 times over one row per thread; rows of 128 bytes and more then reach 70-90 % of the bandwidth. "
        "Short rows (under 32 bytes) stay limited to whole sectors: at best bytes used / 32 of the bandwidth."
    ),
    example="""\
__global__ void gather(const float4* table, const long long* index, float4* out, int count) {  // rows of 32 floats
  int group = (blockIdx.x * blockDim.x + threadIdx.x) / 8 * 4, lane = threadIdx.x % 8;
  float4 v[4];
  for (int k = 0; k < 4; ++k) if (group + k < count) v[k] = table[index[group + k] * 8 + lane];
  for (int k = 0; k < 4; ++k) if (group + k < count) out[(long long)(group + k) * 8 + lane] = v[k];
}
""",
)
