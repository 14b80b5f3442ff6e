"""Advice: the largest k without sorting everything."""

from __future__ import annotations

from warpsmith.core.strategy import Strategy

PLUGIN = Strategy(
    name="top-k-selection",
    title="Select instead of sorting",
    backends=("cuda", "cpu"),
    zones=("memory", "latency", "compute"),
    families=("selection",),
    advice=(
        "Do not sort the row. For k up to about 32 let each thread keep its own largest in registers in one pass, "
        "then merge by warp and by block. For larger k find the k-th value by radix selection: turn floats into "
        "ordered unsigned numbers, count digits of 8 bits from the top in shared memory, keep only the bin that "
        "holds the k-th, and collect in a last pass. Agree with the reference on the order of equal values and on "
        "which index is given for them."
    ),
    effect=(
        "One to four passes over the row instead of a sort's dozens: 5-20 times for k much smaller than the row. "
        "With k above about a quarter of the row, or rows under 1024 elements, a sort in shared memory is as "
        "good."
    ),
    example="""\
__device__ unsigned ordered(float f) {  // a larger float gives a larger number
  unsigned bits = __float_as_uint(f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ void count(const float* x, int n, unsigned* bins) {  // 256 bins in shared memory, cleared before
  for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&bins[ordered(x[i]) >> 24], 1u);
}
""",
)
