// Packs: four neighbouring floats that are loaded and stored as one 16-byte word.
//
// Addresses are counted in packs from the start of a tensor, which is aligned to 256 bytes. A row of a tensor whose
// length is no multiple of four begins and ends inside a pack: `RowSpan` says which packs a row touches and which of
// their elements belong to it, so that rows of any length are read and written with 16-byte accesses.
#pragma once
#include <cstdint>
#include <cuda_runtime.h>

namespace warpsmith {

constexpr unsigned kAll = 0xffffffffu;

__host__ __device__ constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#ifndef TUNE_LOAD
#define TUNE_LOAD 0
#endif
#ifndef TUNE_STORE
#define TUNE_STORE 0
#endif

// A pack that is read once.
__device__ __forceinline__ float4 load_once(const float* from) {
#if TUNE_LOAD == 0
  return __ldg(reinterpret_cast<const float4*>(from));
#elif TUNE_LOAD == 1
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from));
  return v;
#elif TUNE_LOAD == 2
  float4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from));
  return v;
#else
  return __ldcs(reinterpret_cast<const float4*>(from));
#endif
}
// A pack that neighbours read too.
__device__ __forceinline__ float4 load_shared_use(const float* from) {
  return __ldg(reinterpret_cast<const float4*>(from));
}
// A pack that nobody reads again soon.
template <typename T>
__device__ __forceinline__ void put(T* to, T v) {
#if TUNE_STORE == 0
  *to = v;
#elif TUNE_STORE == 1
  __stcs(to, v);
#else
  __stcg(to, v);
#endif
}
__device__ __forceinline__ void store_once(float* to, float4 v) { put(reinterpret_cast<float4*>(to), v); }

// The maximum that keeps NaN, as PyTorch's does.
__device__ __forceinline__ float max_nan(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// The minimum that keeps NaN.
__device__ __forceinline__ float min_nan(float a, float b) {
  float c;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// exp(x) within about two units in the last place; what the product with log2(e) loses is put back.
__device__ __forceinline__ float exp_near(float x) {
  x = max_nan(x, -110.0f);
  const float t = x * 1.4426950408889634f;
  const float lost = fmaf(x, 1.4426950408889634f, -t) + x * 1.925963033500e-8f;
  float e;
  asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(t));
  return e < 3.0e38f ? fmaf(e, lost * 0.6931471805599453f, e) : e;
}

constexpr float kLog2e = 1.4426950408889634f;

// Two to the power of x, within about two units in the last place.
__device__ __forceinline__ float exp2_near(float x) {
  float e;
  asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(x));
  return e;
}

// The packs of row number `row` of a dense matrix with `cols` columns.
struct RowSpan {
  int64_t begin, end;  // elements, counted from the start of the tensor
  int64_t first;       // pack that holds the first element
  int64_t packs;       // how many packs hold elements of the row
  __device__ __forceinline__ RowSpan(int64_t row, int64_t cols)
      : begin(row * cols), end(row * cols + cols), first(begin >> 2), packs(((end - 1) >> 2) - (begin >> 2) + 1) {}
  // Whether the row begins and ends between packs; then all masks are full.
  __device__ __forceinline__ bool whole() const { return ((begin | end) & 3) == 0; }
  // Which elements of pack `p` of the tensor belong to the row: one bit each.
  __device__ __forceinline__ unsigned mask(int64_t p) const {
    if (p != first && p != first + packs - 1) return 0xfu;
    const int64_t from = begin - p * 4, to = end - p * 4;
    const unsigned head = from > 0 ? (0xfu << (from > 4 ? 4 : int(from))) : 0xfu;
    const unsigned tail = to < 4 ? (to <= 0 ? 0u : (0xfu >> (4 - int(to)))) : 0xfu;
    return head & tail & 0xfu;
  }
};

// Loads pack `p`; elements outside the mask become `fill`. Never reads outside the tensor's `total` elements.
__device__ __forceinline__ float4 load_masked(const float* base, int64_t p, unsigned mask, float fill) {
  if (mask == 0xfu) return load_once(base + p * 4);
  float4 v;
  v.x = mask & 1u ? base[p * 4 + 0] : fill;
  v.y = mask & 2u ? base[p * 4 + 1] : fill;
  v.z = mask & 4u ? base[p * 4 + 2] : fill;
  v.w = mask & 8u ? base[p * 4 + 3] : fill;
  return v;
}
__device__ __forceinline__ void store_masked(float* base, int64_t p, float4 v, unsigned mask) {
  if (mask == 0xfu) {
    store_once(base + p * 4, v);
    return;
  }
  if (mask & 1u) base[p * 4 + 0] = v.x;
  if (mask & 2u) base[p * 4 + 1] = v.y;
  if (mask & 4u) base[p * 4 + 2] = v.z;
  if (mask & 8u) base[p * 4 + 3] = v.w;
}

}  // namespace warpsmith
