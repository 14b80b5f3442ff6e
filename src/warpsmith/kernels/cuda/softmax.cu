// Softmax of the rows.
#ifndef TUNE_KEPT_THREADS
#define TUNE_KEPT_THREADS 768
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 9
#endif
#ifndef TUNE_SPREAD
#define TUNE_SPREAD 9
#endif
#include <warpsmith/lagged.cuh>

namespace {
using namespace warpsmith;
struct Softmax : SoftmaxStat {
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

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) {
  return rows_workspace<Softmax>(rows, cols);
}
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  Softmax p;
  p.x = x, p.out = out;
  return reduce_any_rows(p, rows, cols, workspace, stream);
}
