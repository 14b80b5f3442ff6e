// Logarithm of the softmax of the rows.
#include <warpsmith/lagged.cuh>

namespace {
using namespace warpsmith;
struct LogSoftmax : SoftmaxStat {
  const float* x;
  float* out;
  struct Ready {
    float most, log;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t) const { return {s.most, logf(s.sum)}; }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t) const {
    store_masked(out, p, make_float4((v.x - r.most) - r.log, (v.y - r.most) - r.log,
                                     (v.z - r.most) - r.log, (v.w - r.most) - r.log), mask);
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};
}  // namespace

#ifndef TUNE_CLUSTER
#define TUNE_CLUSTER 65536  // rows of so many elements are kept in the registers of a cluster of blocks
#endif
#ifndef TUNE_THREADS
#define TUNE_THREADS 256
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 8
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 2
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 3
#endif

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) {
  return lagged_workspace<LogSoftmax>(rows, cols, TUNE_THREADS, TUNE_PACKS);
}
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  LogSoftmax p;
  p.x = x, p.out = out;
  if (cols <= TUNE_CLUSTER) return reduce_rows(p, rows, cols, stream);
  return launch_lagged<LogSoftmax, TUNE_THREADS, TUNE_PACKS, TUNE_SLOTS, TUNE_RESIDENT>(p, rows, cols, workspace, stream);
}
