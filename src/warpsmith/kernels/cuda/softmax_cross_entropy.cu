// The cross-entropy of every row with its gradient: softmax minus one at the label.
//
// The row kernels below are those of warpsmith/rows.cuh as they were when this kernel was measured; the newer ones with
// a cheaper exponential are faster but were not yet right for rows far from zero.
#include <warpsmith/rows.cuh>

namespace {
using namespace warpsmith;

namespace rows {
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
  float4 values[PACKS];
  unsigned long long bits = 0;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int i = p * THREADS + int(threadIdx.x);
    values[p] = make_float4(P::fill, P::fill, P::fill, P::fill);
    if (i < count) {
      const unsigned mask = span.mask(from + i);
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
      const unsigned mask = unsigned(bits >> (4 * p)) & 0xfu;
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
  if (packs <= 128) return launch_rows<P, 64, 2, 16>(policy, rows, cols, 1, stream);
  if (packs <= 512) return launch_rows<P, 128, 4, 8>(policy, rows, cols, 1, stream);
  if (packs <= 1024) return launch_rows<P, 256, 4, 4>(policy, rows, cols, 1, stream);
  if (packs <= 8 * 256 * 8) return launch_rows<P, 256, 8, 4>(policy, rows, cols, need(256 * 8), stream);
  if (packs <= 8 * 256 * 9) return launch_rows<P, 256, 9, 4>(policy, rows, cols, 8, stream);
  if (packs <= 16 * 256 * 8) return launch_rows<P, 256, 8, 4>(policy, rows, cols, 16, stream);
  if (packs <= 16 * 512 * 9) return launch_rows<P, 512, 9, 2>(policy, rows, cols, 16, stream);
  return launch_rows_twice(policy, rows, cols, stream);
}
}  // namespace rows

// The largest element and the sum of exp(x - largest).
struct SoftmaxStat {
  struct Stat {
    float most, sum;
  };
  static constexpr float fill = -INFINITY;
  static __device__ __forceinline__ Stat none() { return {-INFINITY, 0.0f}; }
  static __device__ __forceinline__ float rate(float from, float to) {  // exp(from - to), 1 where both are -inf
    return from == to ? 1.0f : exp_near(from - to);
  }
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
      sum += (exp_near(v[p].x - low) + exp_near(v[p].y - low)) + (exp_near(v[p].z - low) + exp_near(v[p].w - low));
    return {most, sum};
  }
};

struct CrossEntropy : SoftmaxStat {
  const float* x;
  const int64_t* labels;
  float* loss;
  float* gradient;
  struct Ready {
    float most, scale;
    int64_t label;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t row) const {
    return {s.most, 1.0f / s.sum, __ldg(labels + row)};
  }
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t row,
                                        int64_t column) const {
    float g[4] = {v.x, v.y, v.z, v.w};
    const int64_t hit = r.label - column;
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float z = g[e];
      g[e] = exp_near(z - r.most) * r.scale - (hit == e ? 1.0f : 0.0f);
      if (hit == e && (mask >> e & 1u)) loss[row] = r.most - z - logf(r.scale);
    }
    store_masked(gradient, p, make_float4(g[0], g[1], g[2], g[3]), mask);
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};
int measured_rows(const CrossEntropy& c, int64_t count, int64_t classes, void* stream) {
  return rows::reduce_rows(c, count, classes, stream);
}
}  // namespace

extern "C" int launch(const float* logits, const int64_t* labels, float* loss, float* gradient, int64_t rows,
                      int64_t classes, void* workspace, void* stream) {
  CrossEntropy c;
  c.x = logits, c.labels = labels, c.loss = loss, c.gradient = gradient;
  return measured_rows(c, rows, classes, stream);
}
