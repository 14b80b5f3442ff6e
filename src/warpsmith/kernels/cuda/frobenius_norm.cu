// x divided by the square root of the sum of all its squares: three passes over memory, which the last one begins at the
// end of x, whose packs the first pass has left in the L2 cache.
#include <warpsmith/whole.cuh>

namespace {
using namespace warpsmith;

struct Squares {
  using Loaded = float4;
  const float* x;
  __device__ __forceinline__ float4 load(int64_t p) const { return load_shared_use(x + p * 4); }
  __device__ __forceinline__ float sum(const float4& v) const {
    return fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
  }
  __device__ __forceinline__ float term(int64_t i) const { return x[i] * x[i]; }
};
struct Inverse {  // 1 / length, behind the partial sums
  float* inverse;
  __device__ __forceinline__ void finish(double sum) const { inverse[0] = float(1.0 / sqrt(sum)); }
};

constexpr int kThreads = 256, kPacks = 2;

__global__ void __launch_bounds__(kThreads)
    scale(const float* __restrict__ x, float* __restrict__ out, int64_t n, const float* __restrict__ inverse) {
  const int64_t packs = n / 4;
  const int64_t base = int64_t(gridDim.x - 1 - blockIdx.x) * (kThreads * kPacks) + threadIdx.x;
  const float by = __ldg(inverse);
  float4 v[kPacks];
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (base + p * kThreads < packs) v[p] = load_once(x + (base + p * kThreads) * 4);
#pragma unroll
  for (int p = 0; p < kPacks; ++p)
    if (base + p * kThreads < packs)
      __stcs(reinterpret_cast<float4*>(out) + base + p * kThreads,
             make_float4(v[p].x * by, v[p].y * by, v[p].z * by, v[p].w * by));
  if (blockIdx.x == 0 && threadIdx.x < n % 4) out[packs * 4 + threadIdx.x] = x[packs * 4 + threadIdx.x] * by;
}
}  // namespace

extern "C" int64_t workspace_bytes(int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return warpsmith::whole_bytes() + 16;
}

extern "C" int launch(const float* x, float* out, int64_t batch, int64_t channels, int64_t height, int64_t width,
                      void* workspace, void* stream) {
  const int64_t n = batch * channels * height * width;
  if (n == 0) return 0;
  float* inverse = reinterpret_cast<float*>(static_cast<char*>(workspace) + whole_bytes());
  const int failed = sum_all(Squares{x}, n, workspace, Inverse{inverse}, stream);
  if (failed) return failed;
  const int64_t blocks = ceil_div(n / 4 + 1, int64_t(kThreads) * kPacks);
  scale<<<unsigned(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n, inverse);
  return int(cudaGetLastError());
}
