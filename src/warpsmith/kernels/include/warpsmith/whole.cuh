// One number from all elements: every block leaves a partial sum in the workspace, and one block adds them up.
//
// What is summed is said by a policy P:
//   P::Loaded            what a thread loads for four elements
//   p.load(pack)         loads them
//   p.sum(loaded)        the sum of their four terms
//   p.term(i)            the term of element i, for the elements after the last pack
#pragma once
#include <warpsmith/packs.cuh>

#ifndef TUNE_BLOCKS
#define TUNE_BLOCKS 8448
#endif
#ifndef TUNE_THREADS
#define TUNE_THREADS 256
#endif
#ifndef TUNE_UNROLL
#define TUNE_UNROLL 4
#endif

namespace warpsmith {

constexpr int kMostParts = TUNE_BLOCKS;
constexpr int kWholeThreads = TUNE_THREADS;

template <int THREADS>
__device__ __forceinline__ double block_sum(double value) {
  __shared__ double of_warps[THREADS / 32];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(kAll, value, mask);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < THREADS / 32 ? of_warps[threadIdx.x % 32] : 0.0;
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(kAll, value, mask);
  __syncthreads();
  return value;
}

template <typename P, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS) partial_sums(const __grid_constant__ P policy, int64_t n, double* parts) {
  const int64_t packs = n / 4, stride = int64_t(gridDim.x) * THREADS * UNROLL;
  float sum = 0.0f;
  int64_t base = int64_t(blockIdx.x) * THREADS * UNROLL + threadIdx.x;
  for (; base + (UNROLL - 1) * THREADS < packs; base += stride) {
    typename P::Loaded loaded[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) loaded[u] = policy.load(base + u * THREADS);
    float terms = 0.0f;
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) terms += policy.sum(loaded[u]);
    sum += terms;
  }
#pragma unroll
  for (int u = 0; u < UNROLL; ++u)
    if (base + u * THREADS < packs) sum += policy.sum(policy.load(base + u * THREADS));
  if (blockIdx.x == 0 && threadIdx.x < n % 4) sum += policy.term(packs * 4 + threadIdx.x);
  const double all = block_sum<THREADS>(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

// The sum of `count` partial sums, passed to p.finish by one thread.
template <typename P>
__global__ void __launch_bounds__(1024) finish_sum(const double* __restrict__ parts, int count, const __grid_constant__ P policy) {
  double sum = 0.0;
  for (int i = int(threadIdx.x); i < count; i += 1024) sum += parts[i];
  sum = block_sum<1024>(sum);
  if (threadIdx.x == 0) policy.finish(sum);
}

struct ScaledSum {
  float* out;
  double scale;
  __device__ __forceinline__ void finish(double sum) const { out[0] = float(sum * scale); }
};

__host__ inline int64_t whole_bytes() { return kMostParts * int64_t(sizeof(double)); }

// The sum of all terms, finished by `finish`.
template <typename P, typename F, int UNROLL = TUNE_UNROLL>
int sum_all(const P& policy, int64_t n, void* workspace, const F& finish, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  double* parts = static_cast<double*>(workspace);
  const int64_t wanted = ceil_div(n / 4 + 1, int64_t(kWholeThreads) * UNROLL);
  const int blocks = int(wanted < kMostParts ? wanted : kMostParts);
  partial_sums<P, kWholeThreads, UNROLL><<<blocks, kWholeThreads, 0, on>>>(policy, n, parts);
  finish_sum<F><<<1, 1024, 0, on>>>(parts, blocks, finish);
  return int(cudaGetLastError());
}

// Terms of two tensors of the same shape: F::term(a, b).
template <typename F>
struct PairTerms {
  struct Loaded {
    float4 a, b;
  };
  const float* a;
  const float* b;
  __device__ __forceinline__ Loaded load(int64_t p) const { return {load_once(a + p * 4), load_once(b + p * 4)}; }
  __device__ __forceinline__ float sum(const Loaded& v) const {
    return (F::term(v.a.x, v.b.x) + F::term(v.a.y, v.b.y)) + (F::term(v.a.z, v.b.z) + F::term(v.a.w, v.b.w));
  }
  __device__ __forceinline__ float term(int64_t i) const { return F::term(a[i], b[i]); }
};

}  // namespace warpsmith
