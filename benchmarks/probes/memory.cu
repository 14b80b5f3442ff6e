// How kernels that only move memory are best written on a GPU: element-wise ones (packs for each thread, kinds of loads
// and stores, sizes of blocks) and reductions along long rows (a block for a row, or the blocks of a cluster, with the
// row kept in shared memory or read again). Prints a line for each form; benchmarks/README.md has those that matter.
//
//     nvcc -O3 -arch=sm_90a -std=c++17 benchmarks/probes/memory.cu -o memory && ./memory
//
// T threads of a block, U packs (of four floats, in `l2` single ones) in flight for each, L and S the kind of load and
// store, adj1: the packs of a thread lie side by side, C blocks of a cluster, KEEP1: the row waits in shared memory,
// sh: bytes of shared memory asked for (with KEEP0 only to keep other blocks away). Needs 18 GB.
#include <cooperative_groups.h>

#include "timing.cuh"

namespace cg = cooperative_groups;
template <int L>
__device__ __forceinline__ float4 ld(const float4* p) {
  if (L == 0) return *p;
  if (L == 1) return __ldg(p);
  if (L == 2) return __ldcs(p);
  return __ldcg(p);
}
template <int S>
__device__ __forceinline__ void st(float4* p, float4 v) {
  if (S == 0)
    *p = v;
  else if (S == 1)
    __stcs(p, v);
  else if (S == 2)
    __stcg(p, v);
  else
    __stwt(p, v);
}
__device__ __forceinline__ float4 op(float4 v) {
  v.x = fmaxf(v.x, 0);
  v.y = fmaxf(v.y, 0);
  v.z = fmaxf(v.z, 0);
  v.w = fmaxf(v.w, 0);
  return v;
}
template <int T, int U, int L, int S, int ADJ>
__global__ void __launch_bounds__(T) ew(const float4* __restrict__ x, float4* __restrict__ y, int64_t n) {
  float4 v[U];
  int64_t base = int64_t(blockIdx.x) * T * U + (ADJ ? threadIdx.x * U : threadIdx.x);
#pragma unroll
  for (int u = 0; u < U; u++) {
    int64_t p = base + (ADJ ? u : u * T);
    if (p < n) v[u] = ld<L>(x + p);
  }
#pragma unroll
  for (int u = 0; u < U; u++) {
    int64_t p = base + (ADJ ? u : u * T);
    if (p < n) st<S>(y + p, op(v[u]));
  }
}
template <int T, int U, int L, int S, int ADJ = 0>
void go(const float* x, float* y, int64_t n) {
  int64_t n4 = n / 4;
  int64_t b = (n4 + int64_t(T) * U - 1) / (int64_t(T) * U);
  float m = timed([&] { ew<T, U, L, S, ADJ><<<b, T>>>((const float4*)x, (float4*)y, n4); });
  printf("ew T%d U%d L%d S%d adj%d %.4f ms %.3f TB/s\n", T, U, L, S, ADJ, m, n * 8.0 / m / 1e9);
}
// rows: softmax by cluster
__device__ __forceinline__ void merge(float& m, float& s, float m2, float s2) {
  float M = fmaxf(m, m2);
  s = s * __expf(m - M) + s2 * __expf(m2 - M);
  m = M;
}
template <int T>
__device__ void block_merge(float& m, float& s) {
  __shared__ float ms[32], ss[32];
  for (int o = 16; o; o >>= 1) {
    float m2 = __shfl_xor_sync(~0u, m, o), s2 = __shfl_xor_sync(~0u, s, o);
    merge(m, s, m2, s2);
  }
  if (threadIdx.x % 32 == 0) {
    ms[threadIdx.x / 32] = m;
    ss[threadIdx.x / 32] = s;
  }
  __syncthreads();
  m = threadIdx.x % 32 < T / 32 ? ms[threadIdx.x % 32] : -3e38f;
  s = threadIdx.x % 32 < T / 32 ? ss[threadIdx.x % 32] : 0;
  for (int o = 16; o; o >>= 1) {
    float m2 = __shfl_xor_sync(~0u, m, o), s2 = __shfl_xor_sync(~0u, s, o);
    merge(m, s, m2, s2);
  }
  __syncthreads();
}
template <int T, int U, int KEEP>
__global__ void __launch_bounds__(T) sm(const float* __restrict__ x, float* __restrict__ y, int64_t cols) {
  cg::cluster_group cl = cg::this_cluster();
  int C = cl.num_blocks(), r = cl.block_rank();
  int64_t row = blockIdx.x / C;
  int64_t packs = cols / 4, f = packs * r / C, l = packs * (r + 1) / C;
  const float4* xr = (const float4*)(x + row * cols);
  float4* yr = (float4*)(y + row * cols);
  extern __shared__ float4 kept[];
  __shared__ float pm, ps;
  float m = -3e38f, s = 0;
#pragma unroll 1
  for (int64_t p = f + threadIdx.x; p < l; p += T * U) {
    float4 v[U];
#pragma unroll
    for (int u = 0; u < U; u++)
      if (p + u * T < l) v[u] = KEEP ? __ldcs(xr + p + u * T) : xr[p + u * T];
#pragma unroll
    for (int u = 0; u < U; u++)
      if (p + u * T < l) {
        if (KEEP) kept[p + u * T - f] = v[u];
        float M = fmaxf(fmaxf(fmaxf(v[u].x, v[u].y), fmaxf(v[u].z, v[u].w)), m);
        s = s * __expf(m - M) + __expf(v[u].x - M) + __expf(v[u].y - M) + __expf(v[u].z - M) + __expf(v[u].w - M);
        m = M;
      }
  }
  block_merge<T>(m, s);
  if (C > 1) {
    if (threadIdx.x == 0) {
      pm = m;
      ps = s;
    }
    cl.sync();
    m = -3e38f;
    s = 0;
    for (int i = 0; i < C; i++) merge(m, s, *cl.map_shared_rank(&pm, i), *cl.map_shared_rank(&ps, i));
    cl.sync();
  }
  float inv = 1 / s;
#pragma unroll 1
  for (int64_t p = f + threadIdx.x; p < l; p += T * U) {
    float4 v[U];
#pragma unroll
    for (int u = 0; u < U; u++)
      if (p + u * T < l) v[u] = KEEP ? kept[p + u * T - f] : __ldcs(xr + p + u * T);
#pragma unroll
    for (int u = 0; u < U; u++)
      if (p + u * T < l) {
        float4 w = v[u];
        w.x = __expf(w.x - m) * inv;
        w.y = __expf(w.y - m) * inv;
        w.z = __expf(w.z - m) * inv;
        w.w = __expf(w.w - m) * inv;
        __stcs(yr + p + u * T, w);
      }
  }
}
template <int T, int U, int KEEP>
void gosm(const float* x, float* y, int64_t rows, int64_t cols, int C, int pad = 0) {
  auto k = sm<T, U, KEEP>;
  size_t sh = KEEP ? ((cols / 4 + C - 1) / C + 1) * 16 : pad;
  if (sh > 227 * 1024 - 1024) return;
  float m = timed_clusters(k, rows * C, T, C, sh, x, y, cols);
  if (m < 0) return;
  printf("sm %ldx%ld T%d U%d KEEP%d C%d sh%zu %.4f ms %.3f TB/s\n", (long)rows, (long)cols, T, U, KEEP, C, sh, m,
         rows * cols * 8.0 / m / 1e9);
}
// l2 norm over unaligned rows, scalar
template <int T, int U, int KEEP>
__global__ void __launch_bounds__(T) l2(const float* __restrict__ x, float* __restrict__ y, int cols) {
  cg::cluster_group cl = cg::this_cluster();
  int C = cl.num_blocks(), r = cl.block_rank();
  int64_t row = blockIdx.x / C;
  int f = int64_t(cols) * r / C, l = int64_t(cols) * (r + 1) / C;
  const float* xr = x + row * cols;
  float* yr = y + row * cols;
  extern __shared__ float keptf[];
  __shared__ float pm;
  __shared__ float ws[32];
  float s = 0;
#pragma unroll 1
  for (int p = f + threadIdx.x; p < l; p += T * U) {
    float v[U];
#pragma unroll
    for (int u = 0; u < U; u++) v[u] = p + u * T < l ? (KEEP ? __ldcs(xr + p + u * T) : xr[p + u * T]) : 0.f;
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (KEEP && p + u * T < l) keptf[p + u * T - f] = v[u];
      s += v[u] * v[u];
    }
  }
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (threadIdx.x % 32 == 0) ws[threadIdx.x / 32] = s;
  __syncthreads();
  s = threadIdx.x % 32 < T / 32 ? ws[threadIdx.x % 32] : 0;
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(~0u, s, o);
  if (C > 1) {
    if (threadIdx.x == 0) pm = s;
    cl.sync();
    s = 0;
    for (int i = 0; i < C; i++) s += *cl.map_shared_rank(&pm, i);
    cl.sync();
  }
  float inv = rsqrtf(s);
#pragma unroll 1
  for (int p = f + threadIdx.x; p < l; p += T * U) {
    float v[U];
#pragma unroll
    for (int u = 0; u < U; u++) v[u] = p + u * T < l ? (KEEP ? keptf[p + u * T - f] : __ldcs(xr + p + u * T)) : 0.f;
#pragma unroll
    for (int u = 0; u < U; u++)
      if (p + u * T < l) __stcs(yr + p + u * T, v[u] * inv);
  }
}
template <int T, int U, int KEEP>
void gol2(const float* x, float* y, int64_t rows, int cols, int C) {
  auto k = l2<T, U, KEEP>;
  size_t sh = KEEP ? ((cols + C - 1) / C + 1) * 4 : 0;
  if (sh > 226 * 1024) return;
  float m = timed_clusters(k, rows * C, T, C, sh, x, y, cols);
  if (m < 0) return;
  printf("l2 %ldx%d T%d U%d KEEP%d C%d sh%zu %.4f ms %.3f TB/s\n", (long)rows, cols, T, U, KEEP, C, sh, m,
         rows * double(cols) * 8.0 / m / 1e9);
}
int main() {
  int64_t n = 4096LL * 393216;
  float *x, *y;
  int64_t big = 32768LL * 65536;
  CHECK(cudaMalloc(&x, big * 4));
  CHECK(cudaMalloc(&y, big * 4));
  CHECK(cudaMemset(x, 0, big * 4));
  go<256, 1, 0, 0>(x, y, n);
  go<256, 1, 1, 0>(x, y, n);
  go<256, 1, 1, 1>(x, y, n);
  go<256, 1, 0, 1>(x, y, n);
  go<256, 1, 2, 1>(x, y, n);
  go<256, 1, 2, 0>(x, y, n);
  go<256, 1, 3, 2>(x, y, n);
  go<256, 1, 0, 3>(x, y, n);
  go<128, 1, 1, 1>(x, y, n);
  go<512, 1, 1, 1>(x, y, n);
  go<1024, 1, 1, 1>(x, y, n);
  go<128, 1, 0, 0>(x, y, n);
  go<512, 1, 0, 0>(x, y, n);
  go<1024, 1, 0, 0>(x, y, n);
  go<256, 2, 1, 1>(x, y, n);
  go<256, 2, 0, 0>(x, y, n);
  go<128, 2, 0, 0>(x, y, n);
  go<512, 2, 0, 0>(x, y, n);
  go<256, 4, 1, 1>(x, y, n);
  go<256, 4, 0, 0>(x, y, n);
  go<128, 4, 0, 0>(x, y, n);
  go<128, 4, 2, 1>(x, y, n);
  go<256, 2, 0, 0, 1>(x, y, n);
  go<256, 2, 2, 1, 1>(x, y, n);
  go<128, 2, 0, 0, 1>(x, y, n);
  go<512, 2, 1, 1, 1>(x, y, n);
  {
    float m = timed([&] { cudaMemcpyAsync(y, x, n * 4, cudaMemcpyDeviceToDevice); });
    printf("memcpy %.4f\n", m);
  }
  int64_t R = 4096, K = 393216;
  gosm<1024, 2, 0>(x, y, R, K, 1);
  gosm<512, 4, 0>(x, y, R, K, 1);
  gosm<256, 4, 0>(x, y, R, K, 1);
  for (int C : {4, 8, 16}) {
    gosm<1024, 2, 0>(x, y, R, K, C);
    gosm<1024, 4, 0>(x, y, R, K, C);
    gosm<512, 4, 0>(x, y, R, K, C);
    gosm<256, 4, 0>(x, y, R, K, C);
    gosm<1024, 4, 0>(x, y, R, K, C, 120000);
    gosm<512, 4, 0>(x, y, R, K, C, 110000);
    gosm<1024, 2, 1>(x, y, R, K, C);
    gosm<1024, 4, 1>(x, y, R, K, C);
    gosm<512, 4, 1>(x, y, R, K, C);
    gosm<512, 8, 1>(x, y, R, K, C);
  }
  gosm<1024, 4, 0>(x, y, 16, 4194304, 8);
  gosm<1024, 4, 0>(x, y, 16, 4194304, 16);
  gosm<512, 4, 1>(x, y, 32768, 65536, 2);
  gosm<512, 4, 1>(x, y, 32768, 65536, 4);
  gosm<256, 4, 1>(x, y, 32768, 65536, 4);
  gosm<256, 4, 1>(x, y, 32768, 65536, 8);
  gosm<1024, 2, 0>(x, y, 32768, 65536, 1);
  gosm<1024, 2, 0>(x, y, 32768, 65536, 4);
  for (int C : {1, 2, 4, 8}) {
    gol2<1024, 4, 0>(x, y, 32768, 65535, C);
    gol2<512, 8, 0>(x, y, 32768, 65535, C);
    gol2<256, 8, 0>(x, y, 32768, 65535, C);
    gol2<1024, 8, 1>(x, y, 32768, 65535, C);
    gol2<512, 8, 1>(x, y, 32768, 65535, C);
    gol2<256, 8, 1>(x, y, 32768, 65535, C);
    gol2<512, 4, 1>(x, y, 32768, 65535, C);
  }
  gosm<256, 4, 0>(x, y, 4096, 16384, 1);
  gosm<256, 4, 1>(x, y, 4096, 16384, 1);
  gosm<512, 4, 1>(x, y, 4096, 16384, 1);
  gosm<256, 4, 1>(x, y, 4096, 16384, 2);
}
