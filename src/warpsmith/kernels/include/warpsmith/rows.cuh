// Row kernels: a reduction over each row of a matrix and then a value for each of its elements, with one read of the
// input. A row is shared by the blocks of a cluster, which keep it in registers between the two steps and exchange
// what they found through distributed shared memory. Short rows have a cluster of one block.
//
// What is computed is said by a policy P, an object that is passed to the kernel by value:
//   P::Stat                          what is known of a set of elements
//   P::none()                        of the empty set
//   P::merge(a, b)                   of the union of two disjoint sets
//   P::fill                          stands in for elements that do not exist
//   p.load(pack, mask)               the four elements of a pack of the tensor
//   P::local(values, bits)           the Stat of the elements of a thread (bits: which of them exist)
//   p.prepare(stat, row)             what `store` needs to know about a row (P::Ready)
//   p.store(pack, mask, values, ready, row, column)   writes results; column is that of the pack's first element
//   p.once(stat, ready, row)         called by one thread per row
#pragma once
#include <cooperative_groups.h>
#include <warpsmith/packs.cuh>

namespace warpsmith {

template <typename T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  static_assert(sizeof(T) % 4 == 0, "words");
  union {
    T whole;
    unsigned words[sizeof(T) / 4];
  } from, to;
  from.whole = value;
#pragma unroll
  for (int i = 0; i < int(sizeof(T) / 4); ++i) to.words[i] = __shfl_xor_sync(kAll, from.words[i], mask);
  return to.whole;
}

template <typename P, int WIDTH = 32>
__device__ __forceinline__ typename P::Stat warp_merge(typename P::Stat s) {
#pragma unroll
  for (int mask = WIDTH / 2; mask > 0; mask /= 2) s = P::merge(s, shuffle_xor(s, mask));
  return s;
}

constexpr int kMostBlocks = 16;  // of a cluster

template <typename P, int THREADS, int PACKS, int RESIDENT>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    row_cluster(const __grid_constant__ P policy, int64_t cols, int blocks) {
  namespace cg = cooperative_groups;
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32;
  __shared__ Stat of_warps[WARPS];
  __shared__ Stat of_blocks[kMostBlocks];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = blockIdx.x / unsigned(blocks);
  const int rank = int(blockIdx.x % unsigned(blocks));
  cg::cluster_group cluster = cg::this_cluster();
  if (blocks > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // this block has started

  const RowSpan span(row, cols);
  const int per_block = int((span.packs + blocks - 1) / blocks);
  const int64_t from = span.first + int64_t(rank) * per_block;
  const int64_t left = span.first + span.packs - from;
  const int count = int(left < per_block ? (left < 0 ? 0 : left) : per_block);
  const bool whole = span.whole();
  float4 values[PACKS];
  unsigned long long bits = 0;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int i = p * THREADS + int(threadIdx.x);
    values[p] = make_float4(P::fill, P::fill, P::fill, P::fill);
    if (i < count) {
      const unsigned mask = whole ? 0xfu : span.mask(from + i);
      bits |= static_cast<unsigned long long>(mask) << (4 * p);
      values[p] = policy.load(from + i, mask);
    }
  }
  Stat stat = warp_merge<P>(P::template local<PACKS>(values, bits));
  if (lane == 0) of_warps[warp] = stat;
  __syncthreads();
  if (warp == 0) {
    stat = lane < WARPS ? of_warps[lane] : P::none();
    stat = warp_merge<P>(stat);
  }
  if (blocks > 1) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (warp == 0 && lane < blocks) *cluster.map_shared_rank(&of_blocks[rank], lane) = stat;
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    stat = lane < blocks ? of_blocks[lane] : P::none();
    stat = warp_merge<P>(stat);
  } else {
    if (threadIdx.x == 0) of_blocks[0] = stat;
    __syncthreads();
    stat = of_blocks[0];
  }
  const typename P::Ready ready = policy.prepare(stat, row);
  if (rank == 0 && threadIdx.x == 0) policy.once(stat, ready, row);
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int i = p * THREADS + int(threadIdx.x);
    if (i < count) {
      const unsigned mask = whole ? 0xfu : unsigned(bits >> (4 * p)) & 0xfu;
      policy.store(from + i, mask, values[p], ready, row, (from + i) * 4 - span.begin);
    }
  }
}

// Launches row_cluster with clusters of `blocks` blocks.
template <typename P, int THREADS, int PACKS, int RESIDENT>
int launch_rows(const P& policy, int64_t rows, int64_t cols, int blocks, void* stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(rows * blocks));
  config.blockDim = dim3(THREADS);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = unsigned(blocks);
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = blocks > 1 ? 1 : 0;
  auto kernel = row_cluster<P, THREADS, PACKS, RESIDENT>;
  if (blocks > 8) {
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (e != cudaSuccess) return int(e);
  }
  const cudaError_t e = cudaLaunchKernelEx(&config, kernel, policy, cols, blocks);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}

// ---------------------------------------------------------------------------------------------------------------------
// Rows of any length, for what does not fit into registers: two reads of the row by one block. Slow and general.

template <typename P, int THREADS>
__global__ void __launch_bounds__(THREADS) row_twice(const __grid_constant__ P policy, int64_t cols) {
  using Stat = typename P::Stat;
  __shared__ Stat of_warps[THREADS / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = blockIdx.x;
  const RowSpan span(row, cols);
  Stat stat = P::none();
  for (int64_t i = threadIdx.x; i < span.packs; i += THREADS) {
    const unsigned mask = span.mask(span.first + i);
    const float4 v[1] = {policy.load(span.first + i, mask)};
    stat = P::merge(stat, P::template local<1>(v, mask));
  }
  stat = warp_merge<P>(stat);
  if (lane == 0) of_warps[warp] = stat;
  __syncthreads();
  stat = warp_merge<P>(lane < THREADS / 32 ? of_warps[lane] : P::none());
  const typename P::Ready ready = policy.prepare(stat, row);
  if (threadIdx.x == 0) policy.once(stat, ready, row);
  for (int64_t i = threadIdx.x; i < span.packs; i += THREADS) {
    const unsigned mask = span.mask(span.first + i);
    policy.store(span.first + i, mask, policy.load(span.first + i, mask), ready, row,
                 (span.first + i) * 4 - span.begin);
  }
}
template <typename P>
int launch_rows_twice(const P& policy, int64_t rows, int64_t cols, void* stream) {
  row_twice<P, 1024><<<unsigned(rows), 1024, 0, static_cast<cudaStream_t>(stream)>>>(policy, cols);
  return int(cudaGetLastError());
}

// Picks a shape for the row length. Clusters keep about 24 KB to 32 KB of a row in each block.
template <typename P>
int reduce_rows(const P& policy, int64_t rows, int64_t cols, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  const int64_t packs = ceil_div(cols, 4) + (cols % 4 ? 1 : 0);  // at most so many packs hold a row
  auto need = [&](int64_t per_block) {
    int blocks = 1;
    while (blocks * per_block < packs) blocks *= 2;
    return blocks;
  };
  if (rows <= 264 && packs > 512 && packs <= 8 * 512 * 8) {  // few rows: spread them, 512 threads of a block at a time
    int blocks = 1;
    while (blocks < 8 && (blocks * 4096 < packs || (rows * blocks <= 132 && blocks * 512 < packs))) blocks *= 2;
    const int64_t each = ceil_div(packs, blocks);
    if (each <= 512) return launch_rows<P, 256, 2, 4>(policy, rows, cols, blocks, stream);
    if (each <= 5 * 512) return launch_rows<P, 512, 5, 2>(policy, rows, cols, blocks, stream);
    return launch_rows<P, 512, 8, 2>(policy, rows, cols, blocks, stream);
  }
  if (packs <= 128) return launch_rows<P, 64, 2, 16>(policy, rows, cols, 1, stream);
  if (packs <= 256) return launch_rows<P, 64, 4, 16>(policy, rows, cols, 1, stream);
  if (packs <= 512) return launch_rows<P, 128, 4, 8>(policy, rows, cols, 1, stream);
  if (packs <= 1024) return launch_rows<P, 256, 4, 4>(policy, rows, cols, 1, stream);
  if (packs <= 8 * 256 * 8) return launch_rows<P, 256, 8, 4>(policy, rows, cols, need(256 * 8), stream);
  if (packs <= 8 * 256 * 9) return launch_rows<P, 256, 9, 4>(policy, rows, cols, 8, stream);
  if (packs <= 16 * 256 * 8) return launch_rows<P, 256, 8, 4>(policy, rows, cols, 16, stream);
  if (packs <= 16 * 512 * 9) return launch_rows<P, 512, 9, 2>(policy, rows, cols, 16, stream);
  if (packs <= 16 * 1024 * 6) return launch_rows<P, 1024, 6, 1>(policy, rows, cols, 16, stream);
  return launch_rows_twice(policy, rows, cols, stream);
}

// ---------------------------------------------------------------------------------------------------------------------
// Parts of policies.

__device__ __forceinline__ float part(const float4& v, int e) { return e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w; }

// Mean and squared deviations. Each thread takes the deviations from the mean of its own elements; sets are merged
// without ever subtracting large sums from each other.
struct Moments {
  struct Stat {
    float count, mean, square;
  };
  static constexpr float fill = 0.0f;
  static __device__ __forceinline__ Stat none() { return {0.0f, 0.0f, 0.0f}; }
  static __device__ __forceinline__ Stat merge(const Stat& a, const Stat& b) {
    const float count = a.count + b.count;
    const float share = count > 0.0f ? __fdividef(b.count, count) : 0.0f;
    const float apart = b.mean - a.mean;
    return {count, fmaf(apart, share, a.mean), a.square + b.square + apart * apart * a.count * share};
  }
  template <int PACKS>
  static __device__ __forceinline__ Stat local(const float4 (&v)[PACKS], unsigned long long bits) {
    const float count = float(__popcll(bits));
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) sum += (v[p].x + v[p].y) + (v[p].z + v[p].w);
    const float mean = count > 0.0f ? __fdividef(sum, count) : 0.0f;
    float square = 0.0f;
    if (count == 4.0f * PACKS) {
      float other = 0.0f;
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const float a = v[p].x - mean, b = v[p].y - mean, c = v[p].z - mean, d = v[p].w - mean;
        square = fmaf(a, a, fmaf(b, b, square)), other = fmaf(c, c, fmaf(d, d, other));
      }
      return {count, mean, square + other};
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float d = (bits >> (4 * p + e)) & 1ull ? part(v[p], e) - mean : 0.0f;
        square = fmaf(d, d, square);
      }
    return {count, mean, square};
  }
};

struct SumStat {
  using Stat = float;
  static constexpr float fill = 0.0f;
  static __device__ __forceinline__ Stat none() { return 0.0f; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return a + b; }
};
struct SumMagnitudes : SumStat {
  template <int PACKS>
  static __device__ __forceinline__ Stat local(const float4 (&v)[PACKS], unsigned long long) {
    float sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) sum += (fabsf(v[p].x) + fabsf(v[p].y)) + (fabsf(v[p].z) + fabsf(v[p].w));
    return sum;
  }
};
struct SumSquares : SumStat {
  template <int PACKS>
  static __device__ __forceinline__ Stat local(const float4 (&v)[PACKS], unsigned long long) {
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      a = fmaf(v[p].x, v[p].x, fmaf(v[p].y, v[p].y, a));
      b = fmaf(v[p].z, v[p].z, fmaf(v[p].w, v[p].w, b));
    }
    return a + b;
  }
};
struct LargestMagnitude {
  using Stat = float;
  static constexpr float fill = 0.0f;
  static __device__ __forceinline__ Stat none() { return 0.0f; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return max_nan(a, b); }
  template <int PACKS>
  static __device__ __forceinline__ Stat local(const float4 (&v)[PACKS], unsigned long long) {
    float m = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
      m = max_nan(max_nan(m, max_nan(fabsf(v[p].x), fabsf(v[p].y))), max_nan(fabsf(v[p].z), fabsf(v[p].w)));
    return m;
  }
};

// The largest element and the sum of exp(x - largest).
struct SoftmaxStat {
  struct Stat {
    float most, sum;
  };
  static constexpr float fill = -INFINITY;
  static __device__ __forceinline__ Stat none() { return {-INFINITY, 0.0f}; }
  static __device__ __forceinline__ float power(float x, float most) { return exp2_near((x - most) * kLog2e); }
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

}  // namespace warpsmith
