// Functions of single elements: one read, one write, 16 bytes a thread.
#pragma once
#ifndef TUNE_STORE
#define TUNE_STORE 1
#endif
#ifndef TUNE_THREADS
#define TUNE_THREADS 128
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 1
#endif
#include <warpsmith/packs.cuh>

namespace warpsmith {

template <typename F, int THREADS, int PACKS>
__global__ void __launch_bounds__(THREADS)
    map_packs(const float* __restrict__ x, float* __restrict__ out, int64_t n, const __grid_constant__ F f) {
  const int64_t base = int64_t(blockIdx.x) * (THREADS * PACKS) + threadIdx.x;
  const int64_t packs = n / 4;
  float4 v[PACKS];
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if (base + p * THREADS < packs) v[p] = load_once(x + (base + p * THREADS) * 4);
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if (base + p * THREADS < packs)
      store_once(out + (base + p * THREADS) * 4,
                 make_float4(f.apply(v[p].x), f.apply(v[p].y), f.apply(v[p].z), f.apply(v[p].w)));
  if (blockIdx.x == 0 && threadIdx.x < n % 4) out[packs * 4 + threadIdx.x] = f.apply(x[packs * 4 + threadIdx.x]);
}
template <typename F, int THREADS = TUNE_THREADS, int PACKS = TUNE_PACKS>
int map(const float* x, float* out, int64_t n, void* stream, F f = F{}) {
  if (n == 0) return 0;
  const int64_t blocks = ceil_div(n / 4 + 1, int64_t(THREADS) * PACKS);
  map_packs<F, THREADS, PACKS><<<unsigned(blocks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n, f);
  return int(cudaGetLastError());
}

struct GeluTanh {  // x / 2 * (1 + tanh(u)) = x / (1 + exp(-2 u))
  static __device__ __forceinline__ float apply(float x) {
    const float u = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x);
    return __fdividef(x, 1.0f + exp_near(-2.0f * u));
  }
};
struct GeluErf {
  static __device__ __forceinline__ float apply(float x) {
    return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
  }
};
// log(1 + exp(x)) = max(x, 0) + 2 atanh(e / (2 + e)) with e = exp(-|x|); the series is exact to a float for e <= 1.
struct Softplus {
  static __device__ __forceinline__ float apply(float x) {
    const float e = exp_near(-fabsf(x));
    const float s = __fdividef(e, 2.0f + e), q = s * s;
    float p = fmaf(q, 0.1333333333f, 0.1538461538f);
    p = fmaf(q, p, 0.1818181818f);
    p = fmaf(q, p, 0.2222222222f);
    p = fmaf(q, p, 0.2857142857f);
    p = fmaf(q, p, 0.4f);
    p = fmaf(q, p, 0.6666666667f);
    const float r = fmaf(s * q, p, 2.0f * s);
    return max_nan(x, 0.0f) + r;
  }
};

// exp(x) - 1 for x <= 0: near 0 by its series, so that small results keep their digits.
__device__ __forceinline__ float expm1_near(float x) {
  float p = fmaf(x, 2.4801587e-5f, 1.9841270e-4f);
  p = fmaf(x, p, 1.3888889e-3f);
  p = fmaf(x, p, 8.3333333e-3f);
  p = fmaf(x, p, 4.1666667e-2f);
  p = fmaf(x, p, 1.6666667e-1f);
  p = fmaf(x, p, 0.5f);
  const float series = fmaf(x * x, p, x);
  return x > -0.5f ? series : exp_near(x) - 1.0f;
}

struct Relu {
  static __device__ __forceinline__ float apply(float x) { return max_nan(x, 0.0f); }
};
struct LeakyRelu {
  float slope;
  __device__ __forceinline__ float apply(float x) const { return x > 0.0f ? x : x * slope; }
};
struct Elu {
  float alpha;
  __device__ __forceinline__ float apply(float x) const { return x > 0.0f ? x : alpha * expm1_near(x); }
};
struct Selu {
  static __device__ __forceinline__ float apply(float x) {
    constexpr float kScale = 1.0507009873554805f, kAlpha = 1.7580993408473766f;  // kAlpha has kScale in it
    return x > 0.0f ? kScale * x : kAlpha * expm1_near(x);
  }
};
struct HardTanh {
  static __device__ __forceinline__ float apply(float x) { return min_nan(max_nan(x, -1.0f), 1.0f); }
};
struct HardSigmoid {
  static __device__ __forceinline__ float apply(float x) {
    return min_nan(max_nan(x + 3.0f, 0.0f), 6.0f) * 0.16666667f;
  }
};
struct Sigmoid {
  static __device__ __forceinline__ float apply(float x) { return 1.0f / (1.0f + exp_near(-x)); }
};
struct Swish {
  static __device__ __forceinline__ float apply(float x) { return x / (1.0f + exp_near(-x)); }
};
struct Softsign {
  static __device__ __forceinline__ float apply(float x) { return x / (1.0f + fabsf(x)); }
};
struct Tanh {
  static __device__ __forceinline__ float apply(float x) { return tanhf(x); }
};

}  // namespace warpsmith
