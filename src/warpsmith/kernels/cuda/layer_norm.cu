// Layer normalisation of long rows, with weight and bias for every element of a row. The first kernel takes the moments
// of short pieces, the second brings them together, the third normalises: a thread keeps one pack of weight and bias
// and takes the same pack of all rows, and begins with what the first kernel read last.
#include <warpsmith/rows.cuh>

#ifndef TUNE_ROWS
#define TUNE_ROWS 4
#endif

namespace {
using namespace warpsmith;

constexpr int kThreads = 256, kPacks = 4, kPiece = kThreads * kPacks;

struct LayerNorm : Moments {
  const float* x;
  const float* weight;
  const float* bias;
  float* out;
  float eps;
  struct Ready {
    float mean, scale;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t) const {
    return {s.mean, rsqrtf(s.square / s.count + eps)};
  }
  static __device__ __forceinline__ float4 apply(const float4& v, const float4& w, const float4& b, const Ready& r) {
    return make_float4(fmaf((v.x - r.mean) * r.scale, w.x, b.x), fmaf((v.y - r.mean) * r.scale, w.y, b.y),
                       fmaf((v.z - r.mean) * r.scale, w.z, b.z), fmaf((v.w - r.mean) * r.scale, w.w, b.w));
  }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t column) const {
    if (mask == 0xfu && column % 4 == 0) {
      store_once(out + p * 4, apply(v, load_shared_use(weight + column), load_shared_use(bias + column), r));
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (mask >> e & 1u)
          out[p * 4 + e] = fmaf((part(v, e) - r.mean) * r.scale, __ldg(weight + column + e), __ldg(bias + column + e));
    }
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};

__global__ void __launch_bounds__(kThreads) pieces(const float* __restrict__ x, Moments::Stat* __restrict__ cells,
                                                   unsigned rows, int64_t packs) {
  __shared__ Moments::Stat of_warps[kThreads / 32];
  const int64_t row = blockIdx.x % rows, piece = blockIdx.x / rows;
  float4 v[kPacks];
  unsigned long long bits = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int64_t i = piece * kPiece + p * kThreads + threadIdx.x;
    v[p] = make_float4(0, 0, 0, 0);
    if (i < packs) v[p] = load_once(x + (row * packs + i) * 4), bits |= 0xfull << (4 * p);
  }
  Moments::Stat s = warp_merge<Moments>(Moments::local<kPacks>(v, bits));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = warp_merge<Moments>(threadIdx.x < kThreads / 32 ? of_warps[threadIdx.x] : Moments::none());
    if (threadIdx.x == 0) cells[row * (gridDim.x / rows) + piece] = s;
  }
}
__global__ void __launch_bounds__(1024) together(const Moments::Stat* __restrict__ cells, float2* __restrict__ of_rows,
                                                 float eps, int64_t count) {
  __shared__ Moments::Stat of_warps[32];
  Moments::Stat s = Moments::none();
  for (int64_t i = threadIdx.x; i < count; i += 1024) s = Moments::merge(s, cells[blockIdx.x * count + i]);
  s = warp_merge<Moments>(s);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x < 32) {
    s = warp_merge<Moments>(of_warps[threadIdx.x]);
    if (threadIdx.x == 0) of_rows[blockIdx.x] = make_float2(s.mean, rsqrtf(s.square / s.count + eps));
  }
}
__global__ void __launch_bounds__(256) normalise(const LayerNorm l, const float2* __restrict__ of_rows, int rows,
                                                 int64_t packs) {
  const int64_t i = int64_t(gridDim.x - 1 - blockIdx.x) * 256 + threadIdx.x;
  if (i >= packs) return;
  float4 w, b;
  for (int r0 = 0; r0 < rows; r0 += TUNE_ROWS) {
    float4 v[TUNE_ROWS];
#pragma unroll
    for (int r = 0; r < TUNE_ROWS; ++r)
      if (r0 + r < rows) v[r] = load_once(l.x + ((r0 + r) * packs + i) * 4);
    if (r0 == 0) w = load_once(l.weight + i * 4), b = load_once(l.bias + i * 4);
#pragma unroll
    for (int r = 0; r < TUNE_ROWS; ++r)
      if (r0 + r < rows) {
        const float2 m = __ldg(of_rows + r0 + r);
        store_once(l.out + ((r0 + r) * packs + i) * 4, LayerNorm::apply(v[r], w, b, {m.x, m.y}));
      }
  }
}
}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  const int64_t count = ceil_div(channels * height * width / 4, kPiece);
  return ceil_div(batch * 8, 256) * 256 + batch * count * int64_t(sizeof(Moments::Stat));
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, double eps, int64_t batch,
                      int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  LayerNorm l;
  l.x = x, l.weight = weight, l.bias = bias, l.out = out, l.eps = float(eps);
  const int64_t cols = channels * height * width, packs = cols / 4, count = ceil_div(packs, kPiece);
  if (batch == 0 || cols == 0) return 0;
  if (cols <= 16384 || cols % 4 != 0) return reduce_rows(l, batch, cols, stream);
  auto* of_rows = static_cast<float2*>(workspace);
  auto* cells = reinterpret_cast<Moments::Stat*>(static_cast<char*>(workspace) + ceil_div(batch * 8, 256) * 256);
  pieces<<<unsigned(batch * count), kThreads, 0, s>>>(x, cells, unsigned(batch), packs);
  together<<<unsigned(batch), 1024, 0, s>>>(cells, of_rows, l.eps, count);
  normalise<<<unsigned(ceil_div(packs, 256)), 256, 0, s>>>(l, of_rows, int(batch), packs);
  return int(cudaGetLastError());
}
