"""Advice: the compiler may assume aligned pointers."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="alignment-hints",
    title="State the alignment of pointers",
    backends=("cpu",),
    zones=("memory", "middle", "compute"),
    families=(),
    advice=(
        "The contract gives aligned tensors: say so with std::assume_aligned or __builtin_assume_aligned on the "
        "base pointers (64 bytes or what the contract states), and keep thread boundaries at multiples of 16 "
        "floats, so that no two threads write the same cache line. Row starts are aligned only where the row "
        "length is a multiple of the vector: then state it per row, too."
    ),
    effect=(
        "Removes peeling loops and unaligned head code: 2-10 % in short vector loops, more where streaming stores "
        "need alignment anyway. Nothing for long streams on current CPUs, where unaligned loads cost the same "
        "unless they cross a line. A false statement crashes."
    ),
    example="""\
inline void add(const float* a, const float* b, float* out, long n) {
  const float* x = static_cast<const float*>(__builtin_assume_aligned(a, 64));
  const float* y = static_cast<const float*>(__builtin_assume_aligned(b, 64));
  float* to = static_cast<float*>(__builtin_assume_aligned(out, 64));
  for (long i = 0; i < n; ++i) to[i] = x[i] + y[i];
}
""",
)
