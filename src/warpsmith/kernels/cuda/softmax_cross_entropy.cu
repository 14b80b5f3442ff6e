// The cross-entropy of every row with its gradient: softmax minus one at the label.
#include <warpsmith/rows.cuh>

namespace {
using namespace warpsmith;

struct CrossEntropy : SoftmaxStat {
  const float* x;
  const int64_t* labels;
  float* loss;
  float* gradient;
  struct Ready {
    float most, scale, log_sum;
    int64_t label;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t row) const {
    return {s.most, 1.0f / s.sum, logf(s.sum), __ldg(labels + row)};
  }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t row,
                                        int64_t column) const {
    float g[4] = {power(v.x, r.most) * r.scale, power(v.y, r.most) * r.scale, power(v.z, r.most) * r.scale,
                  power(v.w, r.most) * r.scale};
    const int64_t hit = r.label - column;
    if (hit >= 0 && hit < 4 && (mask >> hit & 1u)) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (hit == e) {
          g[e] -= 1.0f;
          loss[row] = (r.most - part(v, e)) + r.log_sum;
        }
    }
    store_masked(gradient, p, make_float4(g[0], g[1], g[2], g[3]), mask);
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};
}  // namespace

extern "C" int launch(const float* logits, const int64_t* labels, float* loss, float* gradient, int64_t rows,
                      int64_t classes, void* workspace, void* stream) {
  CrossEntropy c;
  c.x = logits, c.labels = labels, c.loss = loss, c.gradient = gradient;
#ifdef TUNE_THREADS
  return warpsmith::launch_rows<CrossEntropy, TUNE_THREADS, TUNE_PACKS, TUNE_RESIDENT>(c, rows, classes, TUNE_BLOCKS, stream);
#else
  return warpsmith::reduce_rows(c, rows, classes, stream);
#endif
}
