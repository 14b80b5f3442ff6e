// Products of small float32 matrices by one warp on the TF32 tensor cores (mma.sync m16n8k8), with the accuracy of float32.
//
// A float32 number x is split into two TF32 numbers: big is x rounded to 11 significant bits, small is the rest. A product of
// two such numbers is big * big + big * small + small * big; small * small is below the rounding of float32.
//
//   * The instruction cuts its sums off instead of rounding them, so the error grows with the number of instructions that add
//     to the same registers. Add d to ordinary float32 registers after every 32 to 64 terms and begin again with zeros; 32 is
//     what sums of fewer than some hundred terms need.
//   * A factor that is infinite or NaN, or so large that it becomes infinite when it is rounded (from 3.4020e38 on), makes
//     the sums that it belongs to NaN: its smaller part is NaN or infinite, and that of the other factor may be 0. A kernel
//     must compute every sum that comes out as NaN again in plain arithmetic. This concerns multiply_split() alone;
//     multiply() of rounded numbers gives what float32 gives.
//
// Where the elements are, with g = lane / 4 and t = lane % 4:
//   a (16 x 8):   a[0] (g, t), a[1] (g + 8, t), a[2] (g, t + 4), a[3] (g + 8, t + 4)      as (row, term)
//   b (8 x 8):    b[0] (t, g), b[1] (t + 4, g)                                            as (term, column)
//   d (16 x 8):   d[0] (g, 2t), d[1] (g, 2t + 1), d[2] (g + 8, 2t), d[3] (g + 8, 2t + 1)  as (row, column)
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace warpsmith {
namespace mma {

struct Parts {
  uint32_t big, small;  // the bits of two float32 numbers, of which the instruction reads the upper 19
};

// Rounded to TF32, to the nearest.
__device__ __forceinline__ uint32_t rounded(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}

// Rounded to the nearest by whole numbers: `cvt` is four instructions on sm_90. The bits of some NaN become those of -0, but
// then the smaller part is NaN. The difference is exact; it has at most 12 significant bits and either sign, and the
// instruction cuts it off to 11.
__device__ __forceinline__ Parts split(float x) {
  const uint32_t big = (__float_as_uint(x) + 0x1000u) & 0xffffe000u;
  return {big, __float_as_uint(x - __uint_as_float(big))};
}

// One product of TF32 numbers: d += a * b. All lanes of the warp take part.
__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Three products, the smaller ones first.
__device__ __forceinline__ void multiply_split(float (&d)[4], const Parts (&a)[4], const Parts (&b)[2]) {
  const uint32_t big_a[4] = {a[0].big, a[1].big, a[2].big, a[3].big}, big_b[2] = {b[0].big, b[1].big};
  const uint32_t small_a[4] = {a[0].small, a[1].small, a[2].small, a[3].small}, small_b[2] = {b[0].small, b[1].small};
  multiply(d, small_a, big_b);
  multiply(d, big_a, small_b);
  multiply(d, big_a, big_b);
}

}  // namespace mma
}  // namespace warpsmith
