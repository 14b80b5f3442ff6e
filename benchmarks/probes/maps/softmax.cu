// Softmax of the rows (TUNE_LOG=1: its logarithm) for rows that fit into the shared memory of a cluster: `kept_rows` of
// kept.cuh, in which a row is written one row later (TUNE_LATER=1), so that nothing waits for what the other blocks of the
// cluster found, and in which clusters start one after another (TUNE_STAGGER nanoseconds apart).
#include <warpsmith/lagged.cuh>

#ifndef TUNE_LOG
#define TUNE_LOG 0
#endif
#ifndef TUNE_LATER
#define TUNE_LATER 1
#endif
#ifndef TUNE_STAGGER
#define TUNE_STAGGER 0
#endif
#ifndef TUNE_BLOCKS
#define TUNE_BLOCKS 16  // of a cluster
#endif
#ifndef TUNE_HELD_THREADS
#define TUNE_HELD_THREADS 768
#endif
#ifndef TUNE_HELD_PACKS
#define TUNE_HELD_PACKS 2
#endif
#ifndef TUNE_HELD_SLOTS
#define TUNE_HELD_SLOTS 9
#endif

namespace {
using namespace warpsmith;

struct Softmax : SoftmaxStat {
  const float* x;
  float* out;
  struct Ready {
    float most, scale;
  };
  __device__ __forceinline__ float4 load(int64_t p, unsigned mask) const { return load_masked(x, p, mask, fill); }
#if TUNE_LOG
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t) const { return {s.most, logf(s.sum)}; }
  static __device__ __forceinline__ float value(float v, const Ready& r) { return (v - r.most) - r.scale; }
#else
  __device__ __forceinline__ Ready prepare(const Stat& s, int64_t) const { return {s.most, 1.0f / s.sum}; }
  static __device__ __forceinline__ float value(float v, const Ready& r) { return power(v, r.most) * r.scale; }
#endif
  __device__ __forceinline__ void store(int64_t p, unsigned mask, const float4& v, const Ready& r, int64_t,
                                        int64_t) const {
    store_masked(out, p, make_float4(value(v.x, r), value(v.y, r), value(v.z, r), value(v.w, r)), mask);
  }
  __device__ __forceinline__ void once(const Stat&, const Ready&, int64_t) const {}
};

template <typename P, int THREADS, int PACKS, int SLOTS, int LATER>
__global__ void __launch_bounds__(THREADS + 32, 1)
    held_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int blocks) {
  namespace cg = cooperative_groups;
  using Stat = typename P::Stat;
  // A block may be told of a row while it has still to read what it was told two rows before: four sides.
  constexpr int WARPS = THREADS / 32, CHUNK = THREADS * PACKS, SIDES = LATER ? 4 : 2;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[2][WARPS];
  __shared__ Stat of_blocks[SIDES][kMostBlocks];
  __shared__ __align__(8) uint64_t full[SLOTS], empty[SLOTS], told[SIDES];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = int(blockIdx.x % unsigned(blocks));
  const int64_t first_row = blockIdx.x / unsigned(blocks), step = gridDim.x / unsigned(blocks);
  if (threadIdx.x == 0) {
    for (int k = 0; k < SLOTS; ++k) {
      barrier_init(&full[k], 32);
      barrier_init(&empty[k], THREADS);
    }
    for (int k = 0; k < SIDES; ++k) barrier_init(&told[k], unsigned(blocks));
    barriers_initialised();
  }
  cluster_sync();

  Place<SLOTS> place;
  if (warp == WARPS) {
    if (TUNE_STAGGER)
      for (int64_t k = 0; k < first_row; ++k) __nanosleep(TUNE_STAGGER);
    for (int64_t row = first_row; row < rows; row += step) {
      const RowPart<CHUNK> part(RowSpan(row, cols), rank, blocks);
      for (int c = 0; c < part.chunks; ++c, place.advance()) {
        barrier_wait(&empty[place.slot], place.parity ^ 1);
        fetch_chunk(policy, rows * cols, part, c, memory + place.slot * CHUNK, &full[place.slot]);
      }
    }
  } else {
    Place<SLOTS> again;  // the same slots once more
    Place<SIDES> said, heard;
    auto reduce = [&](int64_t row) {
      const RowSpan span(row, cols);
      const RowPart<CHUNK> part(span, rank, blocks);
      Stat stat = P::none();
      for (int c = 0; c < part.chunks; ++c, place.advance()) {
        float4 v[PACKS];
        barrier_wait(&full[place.slot], place.parity);
        const auto bits = take_chunk<P, THREADS, PACKS>(span, part, c, memory + place.slot * CHUNK, v);
        stat = P::merge(stat, P::template local<PACKS>(v, bits));
      }
      stat = warp_merge<P>(stat);
      const int side = said.slot % 2;  // warp 0 may still read those of the row before
      if (lane == 0) of_warps[side][warp] = stat;
      asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
      if (warp == 0) {
        stat = warp_merge<P>(lane < WARPS ? of_warps[side][lane] : P::none());
        if (lane < blocks) {
          *cg::this_cluster().map_shared_rank(&of_blocks[said.slot][rank], lane) = stat;
          barrier_arrive_remote(&told[said.slot], unsigned(lane));
        }
      }
      said.advance();
    };
    auto write = [&](int64_t row) {
      const RowSpan span(row, cols);
      const RowPart<CHUNK> part(span, rank, blocks);
      barrier_wait_cluster(&told[heard.slot], heard.parity);
      const Stat stat = warp_merge<P>(lane < blocks ? of_blocks[heard.slot][lane] : P::none());
      heard.advance();
      const typename P::Ready ready = policy.prepare(stat, row);
      for (int c = 0; c < part.chunks; ++c, again.advance()) {
        float4 v[PACKS];
        const auto bits = take_chunk<P, THREADS, PACKS>(span, part, c, memory + again.slot * CHUNK, v);
        barrier_arrive(&empty[again.slot]);
        put_chunk<P, THREADS, PACKS>(policy, span, part, c, v, bits, ready, row);
      }
    };
    for (int64_t row = first_row; row < rows + LATER * step; row += step) {
      if (row < rows) reduce(row);
      if (row >= first_row + LATER * step) write(row - LATER * step);
    }
  }
  __syncwarp();
  cluster_sync();  // no block ends while another one may still write into its shared memory
}

// Whether clusters of so many blocks have room for a row, and for the next one where it is reduced before a row is written.
template <int THREADS, int PACKS, int SLOTS, int LATER>
bool have_room(int64_t cols, int blocks) {
  const int64_t packs = cols % 4 == 0 ? cols / 4 : (cols + 6) / 4;  // a row that begins inside a pack touches one more
  const int64_t chunks = ceil_div(ceil_div(packs, blocks), THREADS * PACKS);
  return chunks * (1 + LATER) <= SLOTS;
}

template <typename P>
int softmax_rows(const P& policy, int64_t rows, int64_t cols, void* workspace, void* stream) {
  constexpr int THREADS = TUNE_HELD_THREADS, PACKS = TUNE_HELD_PACKS, SLOTS = TUNE_HELD_SLOTS, LATER = TUNE_LATER;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  if (cols <= TUNE_CLUSTER || !have_room<THREADS, PACKS, SLOTS, LATER>(cols, TUNE_BLOCKS))
    return reduce_any_rows(policy, rows, cols, workspace, stream);
  auto kernel = held_rows<P, THREADS, PACKS, SLOTS, LATER>;
  const int blocks = TUNE_BLOCKS;
  int clusters = 0;
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
}  // namespace

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) { return rows_workspace<Softmax>(rows, cols); }
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  Softmax p;
  p.x = x, p.out = out;
  return softmax_rows(p, rows, cols, workspace, stream);
}
