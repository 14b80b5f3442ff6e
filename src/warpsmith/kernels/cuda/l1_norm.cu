// Every row divided by the mean magnitude of its elements.
#include <warpsmith/lagged.cuh>

namespace {
using namespace warpsmith;
struct Length : SumMagnitudes {
  const float* x;
  float* out;
  float cols;
  struct Ready {
    float inverse;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(float s, int64_t) const { return {cols / s}; }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t) const {
    store_masked(out, p, make_float4(v.x * r.inverse, v.y * r.inverse, v.z * r.inverse, v.w * r.inverse), mask);
  }
  __device__ __forceinline__ void once(float, const Ready&, int64_t) const {}
};
}  // namespace

#ifndef TUNE_THREADS
#define TUNE_THREADS 256
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 8
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 3
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 2
#endif

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) {
  return lagged_workspace<Length>(rows, cols, TUNE_THREADS, TUNE_PACKS);
}
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  Length p;
  p.x = x, p.out = out, p.cols = float(cols);
  if (cols <= 4096) return launch_rows<Length, 128, 9, 4>(p, rows, cols, 1, stream);
  return launch_lagged<Length, TUNE_THREADS, TUNE_PACKS, TUNE_SLOTS, TUNE_RESIDENT>(p, rows, cols, workspace, stream);
}
