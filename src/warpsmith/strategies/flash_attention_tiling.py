"""Advice: attention without the matrix of scores."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="flash-attention-tiling",
    title="Attention tile by tile",
    backends=("cuda", "cpu", "triton"),
    zones=("memory", "middle", "compute"),
    families=("attention",),
    advice=(
        "Never write the score matrix. Keep a tile of queries on chip and walk over tiles of keys and values: "
        "scores of the tile, running row maximum, correction of the earlier sums and outputs by exp(old maximum - "
        "new maximum), then add this tile's part. Divide by the row sum once at the end. Fold the scale (times "
        "log2 e, with exp2f) into the queries. With a causal mask skip tiles that are wholly masked. Tiles of 64 "
        "x 64 or 128 x 64; on the CPU one thread per head and query tile."
    ),
    effect=(
        "Traffic falls from quadratic to linear in the sequence length: 2-8 times for 1024 tokens and more, and "
        "no workspace. Under about 128 tokens there is little to save. The matrix products inside decide the "
        "rest: they need register tiles, or tensor cores where the precision class allows them."
    ),
    example="""\
struct Row { float largest = -INFINITY, sum = 0.0f; };
__device__ void absorb(Row& row, float* acc, int width, float score, const float* value) {
  float largest = fmaxf(row.largest, score);
  float keep = expf(row.largest - largest), weight = expf(score - largest);
  row.sum = row.sum * keep + weight;
  for (int i = 0; i < width; ++i) acc[i] = acc[i] * keep + weight * value[i];
  row.largest = largest;  // at the end: acc[i] / row.sum
}
""",
)
