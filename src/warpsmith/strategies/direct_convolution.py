"""Advice: window loops unrolled, several outputs per thread."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="direct-convolution",
    title="Direct convolution in registers",
    backends=("cuda", "cpu"),
    zones=("memory", "middle", "compute"),
    families=("convolution",),
    advice=(
        "Let each thread (on the CPU: each vector) compute a strip of neighbouring outputs of one channel, 4 to 8 "
        "of them, with the window loops unrolled by compile-time sizes: an input loaded once serves all windows "
        "it lies in, from a register. Weights are read once per strip, from shared memory or as one broadcast. On "
        "the CPU vectorise along the last axis and run outer loops over output channels in parallel; treat the "
        "borders apart from the middle."
    ),
    effect=(
        "The best form for depthwise and grouped convolutions, for few channels (an RGB input), and on the CPU: "
        "2-4 times over one output per thread. For many channels on both sides a (implicit) matrix product reuses "
        "more and wins."
    ),
    example="""\
template <int TAPS, int STRIP> __device__ void strip(const float* x, const float* weight, float* out) {
  float in[STRIP + TAPS - 1];
  for (int i = 0; i < STRIP + TAPS - 1; ++i) in[i] = x[i];
  for (int o = 0; o < STRIP; ++o) {
    float sum = 0.0f;
    for (int t = 0; t < TAPS; ++t) sum += weight[t] * in[o + t];
    out[o] = sum;
  }
}
""",
)
