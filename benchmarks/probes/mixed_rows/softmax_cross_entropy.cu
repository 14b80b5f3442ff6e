// The cross-entropy of every row with its gradient: softmax minus one at the label. Long rows lie in the shared memory of a
// cluster of blocks, which go from row to row: while one is written, the next one comes in. Short rows belong to one warp.
#include <warpsmith/kept.cuh>

#ifndef TUNE_KEPT_THREADS
#define TUNE_KEPT_THREADS 512
#endif
#ifndef TUNE_KEPT_PACKS
#define TUNE_KEPT_PACKS 2
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 13  // chunks of TUNE_KEPT_THREADS * TUNE_KEPT_PACKS packs that a block keeps
#endif
#ifndef TUNE_SHORT
#define TUNE_SHORT 16384  // shorter rows are kept in registers
#endif
#ifndef TUNE_WARPS
#define TUNE_WARPS 4  // warps of a block where each has a row
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 8  // such blocks of a multiprocessor
#endif

#ifndef TUNE_BEHIND
#define TUNE_BEHIND 2
#endif

namespace {
using namespace warpsmith;

// (mixed.cuh)


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

struct CrossEntropy : QuickStat {
  const float* x;
  const int64_t* labels;
  float* loss;
  float* gradient;
  struct Ready {
    float most, scale, log_sum;
    int64_t label;
  };
  __device__ __forceinline__ int64_t early(int64_t row) const { return __ldg(labels + row); }
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t, int64_t label) const {
    return {s.most, 1.0f / s.sum, logf(s.sum), label};
  }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t row) const { return prepare(s, row, early(row)); }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t row,
                                        int64_t column) const {
    float g[4] = {power(v.x, r.most) * r.scale, power(v.y, r.most) * r.scale, power(v.z, r.most) * r.scale,
                  power(v.w, r.most) * r.scale};
    const int hit = int(r.label - column);
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

// A warp for each row, of at most 32 * PACKS packs, in registers.
template <typename P, int WARPS, int PACKS, int RESIDENT>
__global__ void __launch_bounds__(WARPS * 32, RESIDENT)
    row_warps(const __grid_constant__ P policy, int64_t rows, int64_t cols) {
  const int lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  const auto early = policy.early(row);
  const RowSpan span(row, cols);
  const bool whole = span.whole();
  const int count = int(span.packs);
  float4 values[PACKS];
  unsigned long long bits = 0;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int i = p * 32 + lane;
    values[p] = make_float4(P::fill, P::fill, P::fill, P::fill);
    if (i < count) {
      const unsigned mask = whole ? 0xfu : span.mask(span.first + i);
      bits |= static_cast<unsigned long long>(mask) << (4 * p);
      values[p] = policy.load(span.first + i, mask);
    }
  }
  const typename P::Stat stat = warp_merge<P>(P::template local<PACKS>(values, bits));
  const typename P::Ready ready = policy.prepare(stat, row, early);
  if (lane == 0) policy.once(stat, ready, row);
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int i = p * 32 + lane;
    if (i < count)
      policy.store(span.first + i, whole ? 0xfu : unsigned(bits >> (4 * p)) & 0xfu, values[p], ready, row,
                   (span.first + i) * 4 - span.begin);
  }
}
}  // namespace

extern "C" int launch(const float* logits, const int64_t* labels, float* loss, float* gradient, int64_t rows,
                      int64_t classes, void* workspace, void* stream) {
  CrossEntropy c;
  c.x = logits, c.labels = labels, c.loss = loss, c.gradient = gradient;
  if (rows <= 0 || classes <= 0) return 0;
  if (classes >= TUNE_SHORT && classes <= longest_kept(16, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
    return launch_mixed<CrossEntropy, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(c, rows, classes, stream);
  if (ceil_div(classes, 4) + (classes % 4 ? 1 : 0) <= 32 * 8) {
    row_warps<CrossEntropy, TUNE_WARPS, 8, TUNE_RESIDENT>
        <<<unsigned(ceil_div(rows, TUNE_WARPS)), TUNE_WARPS * 32, 0, static_cast<cudaStream_t>(stream)>>>(c, rows, classes);
    return int(cudaGetLastError());
  }
  return reduce_rows(c, rows, classes, stream);
}
