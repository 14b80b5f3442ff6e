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

// As kept_rows of kept.cuh, but the next row is reduced while a row is written, TUNE_BEHIND chunks behind.
template <typename P, int THREADS, int PACKS, int SLOTS>
__global__ void __launch_bounds__(THREADS + 32, 1)
    mixed_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int blocks) {
  namespace cg = cooperative_groups;
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32, CHUNK = THREADS * PACKS;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[WARPS];
  __shared__ Stat of_blocks[2][kMostBlocks];
  __shared__ __align__(8) uint64_t full[SLOTS], empty[SLOTS], told[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = int(blockIdx.x % unsigned(blocks));
  const int64_t first_row = blockIdx.x / unsigned(blocks), step = gridDim.x / unsigned(blocks);
  if (threadIdx.x == 0) {
    for (int k = 0; k < SLOTS; ++k) {
      barrier_init(&full[k], 32);
      barrier_init(&empty[k], THREADS);
    }
    barrier_init(&told[0], unsigned(blocks));
    barrier_init(&told[1], unsigned(blocks));
    barriers_initialised();
  }
  cluster_sync();

  Place<SLOTS> place;
  if (warp == WARPS) {
    for (int64_t row = first_row; row < rows; row += step) {
      const RowPart<CHUNK> part(RowSpan(row, cols), rank, blocks);
      for (int c = 0; c < part.chunks; ++c, place.advance()) {
        barrier_wait(&empty[place.slot], place.parity ^ 1);
        fetch_chunk(policy, rows * cols, part, c, memory + place.slot * CHUNK, &full[place.slot]);
      }
    }
  } else {
    Place<SLOTS> again;  // the same slots once more
    unsigned turn = 0;   // rows done
    Stat next = P::none();
    int seen = 0;  // chunks of the next row that `next` is of
    auto see = [&](const RowSpan& span, const RowPart<CHUNK>& part) {
      float4 v[PACKS];
      barrier_wait(&full[place.slot], place.parity);
      const auto bits = take_chunk<P, THREADS, PACKS>(span, part, seen, memory + place.slot * CHUNK, v);
      next = P::merge(next, P::template local<PACKS>(v, bits));
      place.advance();
      ++seen;
    };
    for (int64_t row = first_row; row < rows; row += step, ++turn) {
      const RowSpan span(row, cols);
      const RowPart<CHUNK> part(span, rank, blocks);
      const auto early = load_early(policy, row, 0);
      while (seen < part.chunks) see(span, part);
      Stat stat = warp_merge<P>(next);
      if (lane == 0) of_warps[warp] = stat;
      asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
      const int side = turn & 1;
      if (warp == 0) {
        stat = warp_merge<P>(lane < WARPS ? of_warps[lane] : P::none());
        if (lane < blocks) {
          *cg::this_cluster().map_shared_rank(&of_blocks[side][rank], lane) = stat;
          barrier_arrive_remote(&told[side], unsigned(lane));
        }
      }
      barrier_wait_cluster(&told[side], (turn >> 1) & 1);
      stat = warp_merge<P>(lane < blocks ? of_blocks[side][lane] : P::none());
      const typename P::Ready ready = prepare_with(policy, stat, row, early);
      if (rank == 0 && threadIdx.x == 0) policy.once(stat, ready, row);
      const int64_t after = row + step < rows ? row + step : row;
      const RowSpan span_after(after, cols);
      const RowPart<CHUNK> part_after(span_after, rank, blocks);
      next = P::none(), seen = 0;
      for (int c = 0; c < part.chunks; ++c, again.advance()) {
        float4 v[PACKS];
        const auto bits = take_chunk<P, THREADS, PACKS>(span, part, c, memory + again.slot * CHUNK, v);
        barrier_arrive(&empty[again.slot]);
        put_chunk<P, THREADS, PACKS>(policy, span, part, c, v, bits, ready, row);
        if (c >= TUNE_BEHIND && after != row && seen < part_after.chunks) see(span_after, part_after);
      }
    }
  }
  __syncwarp();
  cluster_sync();  // no block ends while another one may still write into its shared memory
}

template <typename P, int THREADS, int PACKS, int SLOTS>
int launch_mixed(const P& policy, int64_t rows, int64_t cols, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  auto kernel = mixed_rows<P, THREADS, PACKS, SLOTS>;
  int blocks = 1, clusters = 0;
  while (blocks < kMostBlocks && longest_kept(blocks, THREADS, PACKS, SLOTS) < cols) blocks *= 2;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(THREADS + 32);
  config.dynamicSmemBytes = BYTES;
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = unsigned(blocks);
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e == cudaSuccess && blocks > 8) e = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (e == cudaSuccess) e = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
  if (e != cudaSuccess) return int(e);
  if (clusters < 1) clusters = 1;
  config.gridDim = dim3(unsigned((rows < clusters ? rows : clusters) * blocks));
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, blocks);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}


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
