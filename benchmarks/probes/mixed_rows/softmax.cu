// Softmax of the rows; long rows as in kept.cuh, but the next row is reduced while one is written.
#include <warpsmith/lagged.cuh>

#ifndef TUNE_BEHIND
#define TUNE_BEHIND 2  // chunks between what is written of a row and what is reduced of the next
#endif
#ifndef TUNE_QUICK
#define TUNE_QUICK 1  // powers below 2^-126 are 0
#endif

namespace {
using namespace warpsmith;

// SoftmaxStat with powers below 2^-126 taken as 0, which saves three instructions each.
struct QuickStat {
  using Stat = SoftmaxStat::Stat;
  static constexpr float fill = -INFINITY;
  static __device__ __forceinline__ Stat none() { return {-INFINITY, 0.0f}; }
  static __device__ __forceinline__ float power(float x, float most) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"((x - most) * kLog2e));
    return e;
  }
  static __device__ __forceinline__ float rate(float from, float to) { return from == to ? 1.0f : power(from, to); }
  static __device__ __forceinline__ Stat merge(const Stat& a, const Stat& b) {
    const float most = max_nan(a.most, b.most);
    return {most, a.sum * rate(a.most, most) + b.sum * rate(b.most, most)};
  }
  template <int PACKS>
  static __device__ __forceinline__ Stat local(const float4 (&v)[PACKS], unsigned long long) {
    float most = -INFINITY;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) most = max_nan(most, max_nan(max_nan(v[p].x, v[p].y), max_nan(v[p].z, v[p].w)));
    const float low = most == -INFINITY ? 0.0f : most;
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
      sum += (power(v[p].x, low) + power(v[p].y, low)) + (power(v[p].z, low) + power(v[p].w, low));
    return {most, sum};
  }
};

// (mixed.cuh)

#if TUNE_QUICK
using Powers = QuickStat;
#else
using Powers = SoftmaxStat;
#endif
struct Softmax : Powers {
  const float* x;
  float* out;
  struct Ready {
    float most, scale;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t) const { return {s.most, 1.0f / s.sum}; }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t) const {
    store_masked(out, p, make_float4(power(v.x, r.most) * r.scale, power(v.y, r.most) * r.scale,
                                     power(v.z, r.most) * r.scale, power(v.w, r.most) * r.scale), mask);
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};
}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) { return rows_workspace<Softmax>(rows, cols); }
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  Softmax p;
  p.x = x, p.out = out;
  if (cols > TUNE_CLUSTER && cols <= longest_kept(8, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
    return launch_mixed<Softmax, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(p, rows, cols, stream);
  return reduce_any_rows(p, rows, cols, workspace, stream);
}
