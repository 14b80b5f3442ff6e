"""Advice: fewer multiplications for 3 x 3 windows."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="winograd",
    title="Winograd for 3 x 3 convolutions",
    backends=("cuda", "cpu"),
    zones=("compute",),
    families=("convolution",),
    advice=(
        "For 3 x 3 windows with stride 1 use F(2x2, 3x3): transform 4 x 4 input tiles and the weights, multiply "
        "element by element summed over input channels (16 independent matrix products), and transform the sums "
        "back to 2 x 2 outputs. The transforms are additions only. Keep to F(2x2): larger tiles save more and "
        "lose digits. The weights must be transformed in every call (into the workspace), since nothing may be "
        "kept between calls."
    ),
    effect=(
        "2.25 times fewer multiplications; 1.3-1.8 times in practice for 64 and more channels where arithmetic is "
        "the limit. Rounding errors grow about 2-3 times, so check the tolerance. No gain for other windows, "
        "other strides, few channels, or on tensor cores, where implicit products are faster."
    ),
    example="""\
// One dimension, F(2, 3): two outputs of a 3-tap filter from four inputs by 4 products instead of 6.
inline void outputs(const float d[4], const float g[3], float y[2]) {
  float m1 = (d[0] - d[2]) * g[0];
  float m2 = (d[1] + d[2]) * 0.5f * (g[0] + g[1] + g[2]);
  float m3 = (d[2] - d[1]) * 0.5f * (g[0] - g[1] + g[2]);
  float m4 = (d[1] - d[3]) * g[2];
  y[0] = m1 + m2 + m3, y[1] = m2 - m3 - m4;
}
""",
    precisions=("fp32", "fp64", "tf32"),
)
