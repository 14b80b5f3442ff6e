// exp(x) - 1 for x <= 0 without a branch, for functions of single elements that run at the speed of memory.
#pragma once
#include <warpsmith/packs.cuh>

namespace warpsmith {

// Near 0 by the series, so that small results keep their digits. Elsewhere the result is at least 0.39, and what the
// rounded product with log2(e) loses is less than half a unit in its last place.
__device__ __forceinline__ float expm1_selected(float x) {
  float p = fmaf(x, 2.4801587e-5f, 1.9841270e-4f);
  p = fmaf(x, p, 1.3888889e-3f);
  p = fmaf(x, p, 8.3333333e-3f);
  p = fmaf(x, p, 4.1666667e-2f);
  p = fmaf(x, p, 1.6666667e-1f);
  p = fmaf(x, p, 0.5f);
  const float series = fmaf(x * x, p, x), other = exp2_near(x * kLog2e) - 1.0f;
  return x > -0.5f ? series : other;
}

}  // namespace warpsmith
