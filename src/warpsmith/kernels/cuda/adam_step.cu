// One step of Adam: new weights and both moments.
#include <warpsmith/packs.cuh>

#ifndef TUNE_THREADS
#define TUNE_THREADS 256
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 1
#endif

namespace {
using namespace warpsmith;

struct Rates {
  float rate, beta1, rest1, beta2, rest2, eps;
};
__device__ __forceinline__ void step(float w, float g, float m, float v, const Rates& r, float& nw, float& nm, float& nv) {
  nm = r.beta1 * m + r.rest1 * g;
  nv = r.beta2 * v + r.rest2 * (g * g);
  nw = w - __fdiv_rn(r.rate * nm, __fsqrt_rn(nv) + r.eps);
}

template <int PACKS>
__global__ void __launch_bounds__(TUNE_THREADS) packed(const float* __restrict__ w, const float* __restrict__ g,
                                                       const float* __restrict__ m, const float* __restrict__ v,
                                                       float* __restrict__ nw, float* __restrict__ nm,
                                                       float* __restrict__ nv, Rates r, int64_t n) {
  const int64_t base = int64_t(blockIdx.x) * (TUNE_THREADS * PACKS) + threadIdx.x;
  const int64_t packs = n / 4;
  float4 a[PACKS], b[PACKS], c[PACKS], d[PACKS];
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t i = base + p * TUNE_THREADS;
    if (i < packs) a[p] = load_once(w + i * 4), b[p] = load_once(g + i * 4), c[p] = load_once(m + i * 4), d[p] = load_once(v + i * 4);
  }
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t i = base + p * TUNE_THREADS;
    if (i < packs) {
      float4 x, y, z;
      step(a[p].x, b[p].x, c[p].x, d[p].x, r, x.x, y.x, z.x);
      step(a[p].y, b[p].y, c[p].y, d[p].y, r, x.y, y.y, z.y);
      step(a[p].z, b[p].z, c[p].z, d[p].z, r, x.z, y.z, z.z);
      step(a[p].w, b[p].w, c[p].w, d[p].w, r, x.w, y.w, z.w);
      store_once(nw + i * 4, x), store_once(nm + i * 4, y), store_once(nv + i * 4, z);
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < n % 4) {
    const int64_t i = packs * 4 + threadIdx.x;
    float x, y, z;
    step(w[i], g[i], m[i], v[i], r, x, y, z);
    nw[i] = x, nm[i] = y, nv[i] = z;
  }
}
}  // namespace

extern "C" int launch(const float* weight, const float* gradient, const float* first, const float* second,
                      float* new_weight, float* mean, float* spread, double rate, double beta1, double beta2, double eps,
                      int64_t n, void* workspace, void* stream) {
  if (n == 0) return 0;
  const Rates r = {float(rate), float(beta1), float(1 - beta1), float(beta2), float(1 - beta2), float(eps)};
  packed<TUNE_PACKS><<<unsigned(ceil_div(n / 4 + 1, int64_t(TUNE_THREADS) * TUNE_PACKS)), TUNE_THREADS, 0,
                       static_cast<cudaStream_t>(stream)>>>(weight, gradient, first, second, new_weight, mean, spread, r, n);
  return int(cudaGetLastError());
}
