// Batch normalisation with the statistics of the batch. All blocks of the device share a channel: each reads its part,
// keeps as much of it as shared memory holds, tells the others what it found, and reads what it could not keep once
// more, last part first, while it is still in the second-level cache.
#include <warpsmith/team.cuh>

#ifndef TUNE_THREADS
#define TUNE_THREADS 1024
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 216  // KB of shared memory
#endif

namespace {
using namespace warpsmith;

constexpr int N = 4;                        // packs of a thread that are loaded together
constexpr int kStep = TUNE_THREADS * N;     // packs of a block that are loaded together
constexpr int kKept = TUNE_KEPT * 1024 / 16 / kStep;  // steps that are kept

__device__ __forceinline__ float4 load_rule(const float* from, uint64_t rule) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0,%1,%2,%3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from), "l"(rule));
  return v;
}

__global__ void __launch_bounds__(TUNE_THREADS, 1)
    normalise(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
              float* __restrict__ out, float eps, int batch, int channels, int plane_packs, unsigned* counters,
              Moments::Stat* cells) {
  using Stat = Moments::Stat;
  extern __shared__ __align__(128) float4 kept[];
  __shared__ Stat of_warps[TUNE_THREADS / 32];
  __shared__ Stat of_all;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int blocks = int(gridDim.x), rank = int(blockIdx.x);
  const int64_t packs = int64_t(batch) * plane_packs;
  const int64_t steps = ceil_div(packs, kStep);
  // Step s of a channel is taken by block s % blocks: all blocks walk through memory side by side.
  const int mine = int(steps > rank ? (steps - rank + blocks - 1) / blocks : 0);
  const int kept_steps = mine < kKept ? mine : kKept;
  uint64_t first, last;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));

  for (int channel = 0; channel < channels; ++channel) {
    auto place = [&](int step, int n) -> int64_t {  // element, or -1
      const int64_t p = (int64_t(step) * blocks + rank) * kStep + n * TUNE_THREADS + threadIdx.x;
      if (p >= packs) return -1;
      const unsigned image = unsigned(p) / unsigned(plane_packs), inside = unsigned(p) - image * unsigned(plane_packs);
      return ((int64_t(image) * channels + channel) * plane_packs + inside) * 4;
    };
    Stat stat = Moments::none();
    for (int step = 0; step < mine; ++step) {
      const bool keep = step < kept_steps;
      float4 v[N];
      unsigned long long bits = 0;
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const int64_t at = place(step, n);
        v[n] = make_float4(0, 0, 0, 0);
        if (at >= 0) {
          v[n] = load_rule(x + at, keep ? first : last);
          bits |= 0xfull << (4 * n);
        }
      }
      if (keep)
#pragma unroll
        for (int n = 0; n < N; ++n) kept[(step * N + n) * TUNE_THREADS + threadIdx.x] = v[n];
      stat = Moments::merge(stat, Moments::local<N>(v, bits));
    }
    stat = warp_merge<Moments>(stat);
    if (lane == 0) of_warps[warp] = stat;
    __syncthreads();
    if (warp == 0) {
      stat = warp_merge<Moments>(lane < TUNE_THREADS / 32 ? of_warps[lane] : Moments::none());
      stat = meet<Moments>(stat, cells + int64_t(channel) * blocks, counters + channel, rank, blocks);
      if (lane == 0) of_all = stat;
    }
    __syncthreads();
    stat = of_all;
    const float scale = rsqrtf(stat.square / stat.count + eps) * __ldg(weight + channel), shift = __ldg(bias + channel);
    const float mean = stat.mean;
    for (int step = mine - 1; step >= 0; --step) {
      const bool keep = step < kept_steps;
      float4 v[N];
      int64_t at[N];
#pragma unroll
      for (int n = 0; n < N; ++n) {
        at[n] = place(step, n);
        if (at[n] >= 0) v[n] = keep ? kept[(step * N + n) * TUNE_THREADS + threadIdx.x] : load_rule(x + at[n], first);
      }
#pragma unroll
      for (int n = 0; n < N; ++n)
        if (at[n] >= 0)
          store_once(out + at[n], make_float4(fmaf(v[n].x - mean, scale, shift), fmaf(v[n].y - mean, scale, shift),
                                              fmaf(v[n].z - mean, scale, shift), fmaf(v[n].w - mean, scale, shift)));
    }
  }
}

// Any size: one block per channel, two reads.
__global__ void __launch_bounds__(1024) single(const float* __restrict__ x, const float* __restrict__ weight,
                                               const float* __restrict__ bias, float* __restrict__ out, float eps,
                                               int64_t batch, int64_t channels, int64_t plane) {
  using Stat = Moments::Stat;
  __shared__ Stat of_warps[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t channel = blockIdx.x;
  Stat stat = Moments::none();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = threadIdx.x; i < plane; i += 1024)
      stat = Moments::merge(stat, {1.0f, x[(b * channels + channel) * plane + i], 0.0f});
  stat = warp_merge<Moments>(stat);
  if (lane == 0) of_warps[warp] = stat;
  __syncthreads();
  stat = warp_merge<Moments>(of_warps[lane]);
  const float scale = rsqrtf(stat.square / stat.count + eps) * weight[channel], shift = bias[channel];
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = threadIdx.x; i < plane; i += 1024) {
      const int64_t at = (b * channels + channel) * plane + i;
      out[at] = fmaf(x[at] - stat.mean, scale, shift);
    }
}

int units() {
  int device = 0, n = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return n;
}
}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  return ceil_div(channels * 4, 256) * 256 + channels * units() * int64_t(sizeof(Moments::Stat));
}
extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, double eps, int64_t batch,
                      int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  const int64_t plane = height * width;
  if (batch * channels * plane == 0) return 0;
  if (plane % 4 != 0 || batch * plane / 4 >= (int64_t(1) << 31)) {
    single<<<unsigned(channels), 1024, 0, s>>>(x, weight, bias, out, float(eps), batch, channels, plane);
    return int(cudaGetLastError());
  }
  const size_t bytes = size_t(kKept) * kStep * 16;
  cudaError_t e = cudaFuncSetAttribute(normalise, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (e != cudaSuccess) return int(e);
  e = cudaMemsetAsync(workspace, 0, size_t(channels) * 4, s);
  if (e != cudaSuccess) return int(e);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(units()));
  config.blockDim = dim3(TUNE_THREADS);
  config.dynamicSmemBytes = bytes;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  auto* cells = reinterpret_cast<Moments::Stat*>(static_cast<char*>(workspace) + ceil_div(channels * 4, 256) * 256);
  e = cudaLaunchKernelEx(&config, normalise, x, weight, bias, out, float(eps), int(batch), int(channels), int(plane / 4),
                         static_cast<unsigned*>(workspace), cells);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}
