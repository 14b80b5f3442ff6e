// What a block adds to its input, and the normalised sum.
#include <warpsmith/rows.cuh>

namespace {
using namespace warpsmith;

struct Residual : SumSquares {
  const float* x;
  const float* residual;
  const float* weight;
  float* y;
  float* total;
  float eps, cols;
  struct Ready {
    float scale;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const {
    const float4 a = load_masked(x, p, mask, fill), b = load_masked(residual, p, mask, fill);
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
  __device__ __forceinline__ Ready prepare(float s, int64_t) const { return {rsqrtf(s / cols + eps)}; }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t column) const {
    store_masked(total, p, v, mask);
    if (mask == 0xfu && column % 4 == 0) {
      const float4 w = load_shared_use(weight + column);
      store_once(y + p * 4, make_float4(v.x * r.scale * w.x, v.y * r.scale * w.y, v.z * r.scale * w.z, v.w * r.scale * w.w));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (mask >> e & 1u) y[p * 4 + e] = part(v, e) * r.scale * __ldg(weight + column + e);
    }
  }
  __device__ __forceinline__ void once(float, const Ready&, int64_t) const {}
};
}  // namespace

extern "C" int launch(const float* x, const float* residual, const float* weight, float* y, float* total, double eps,
                      int64_t rows, int64_t cols, void* workspace, void* stream) {
  Residual r;
  r.x = x, r.residual = residual, r.weight = weight, r.y = y, r.total = total, r.eps = float(eps), r.cols = float(cols);
#ifdef TUNE_THREADS
  return warpsmith::launch_rows<Residual, TUNE_THREADS, TUNE_PACKS, TUNE_RESIDENT>(r, rows, cols, TUNE_BLOCKS, stream);
#else
  return reduce_rows(r, rows, cols, stream);
#endif
}
