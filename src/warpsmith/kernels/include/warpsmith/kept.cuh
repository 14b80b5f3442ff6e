// Rows that fit into the shared memory of a cluster of blocks: a reduction over each row and then a value for each
// element, with one read of the input. The blocks stay and go from row to row. While a row is written, its room in shared
// memory is filled with the next row, so that reads and writes of device memory overlap.
//
// The policy is that of rows.cuh, with `const float* x` as the only input that is read by row. What `early(row)` of a policy
// returns, if it has one, is loaded before the row is waited for, and given to `prepare(stat, row, early)`.
#pragma once
#include <warpsmith/blocks.cuh>

namespace warpsmith {

// The part of a row that belongs to one of several blocks, in chunks of CHUNK packs.
template <int CHUNK>
struct RowPart {
  int64_t from;  // its first pack
  int count, chunks;
  __device__ __forceinline__ RowPart(const RowSpan& span, int rank, int blocks) {
    const int each = int((span.packs + blocks - 1) / blocks);
    from = span.first + int64_t(rank) * each;
    const int64_t left = span.first + span.packs - from;
    count = int(left < each ? (left < 0 ? 0 : left) : each);
    chunks = (count + CHUNK - 1) / CHUNK;
  }
};
// Fetches chunk number c of a part; called by a whole warp, whose 32 lanes arrive at the barrier.
template <typename P, int CHUNK>
__device__ __forceinline__ void fetch_chunk(const P& policy, int64_t elements, const RowPart<CHUNK>& part, int c, float4* to,
                                            uint64_t* barrier) {
  const int lane = threadIdx.x % 32;
  const int64_t from = part.from + int64_t(c) * CHUNK;
  int count = part.count - c * CHUNK < CHUNK ? part.count - c * CHUNK : CHUNK;
  if ((from + count) * 4 > elements) {  // the last pack of the tensor is not a whole one
    --count;
    const int64_t at = (from + count) * 4 + lane;
    if (lane < 4) reinterpret_cast<float*>(to + count)[lane] = at < elements ? policy.x[at] : P::fill;
  }
  if (lane == 0)
    bulk_fetch(to, policy.x + from * 4, unsigned(count) * 16, barrier);
  else
    barrier_arrive(barrier);
}
// The packs of chunk number c that this thread has; returns which of their elements exist.
template <typename P, int THREADS, int PACKS>
__device__ __forceinline__ unsigned long long take_chunk(const RowSpan& span, const RowPart<THREADS * PACKS>& part, int c,
                                                         const float4* held, float4 (&v)[PACKS]) {
  const bool whole = span.whole();
  unsigned long long bits = 0;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int i = p * THREADS + int(threadIdx.x), at = c * (THREADS * PACKS) + i;
    v[p] = make_float4(P::fill, P::fill, P::fill, P::fill);
    if (at >= part.count) continue;
    const unsigned mask = whole ? 0xfu : span.mask(part.from + at);
    bits |= static_cast<unsigned long long>(mask) << (4 * p);
    v[p] = held[i];
    if (mask != 0xfu) {
      if (!(mask & 1u)) v[p].x = P::fill;
      if (!(mask & 2u)) v[p].y = P::fill;
      if (!(mask & 4u)) v[p].z = P::fill;
      if (!(mask & 8u)) v[p].w = P::fill;
    }
  }
  return bits;
}
template <typename P, int THREADS, int PACKS>
__device__ __forceinline__ void put_chunk(const P& policy, const RowSpan& span, const RowPart<THREADS * PACKS>& part, int c,
                                          const float4 (&v)[PACKS], unsigned long long bits,
                                          const typename P::Ready& ready, int64_t row) {
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t at = c * (THREADS * PACKS) + p * THREADS + int(threadIdx.x);
    if (at < part.count)
      policy.store(part.from + at, unsigned(bits >> (4 * p)) & 0xfu, v[p], ready, row,
                   (part.from + at) * 4 - span.begin);
  }
}
// The next slot of a ring, and the parity with which its barriers are waited for.
template <int SLOTS>
struct Place {
  int slot = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == SLOTS) slot = 0, parity ^= 1;
  }
};

struct Nothing {};
template <typename P>
__device__ __forceinline__ auto load_early(const P& policy, int64_t row, int) -> decltype(policy.early(row)) {
  return policy.early(row);
}
template <typename P>
__device__ __forceinline__ Nothing load_early(const P&, int64_t, long) {
  return {};
}
template <typename P, typename Early>
__device__ __forceinline__ auto prepare_with(const P& policy, const typename P::Stat& stat, int64_t row, Early early) {
  return policy.prepare(stat, row, early);
}
template <typename P>
__device__ __forceinline__ auto prepare_with(const P& policy, const typename P::Stat& stat, int64_t row, Nothing) {
  return policy.prepare(stat, row);
}

// A block holds SLOTS chunks of THREADS * PACKS packs. THREADS threads work; one warp more fetches the chunks.
template <typename P, int THREADS, int PACKS, int SLOTS>
__global__ void __launch_bounds__(THREADS + 32, 1)
    kept_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int blocks) {
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
    for (int64_t row = first_row; row < rows; row += step, ++turn) {
      const RowSpan span(row, cols);
      const RowPart<CHUNK> part(span, rank, blocks);
      const auto early = load_early(policy, row, 0);
      Stat stat = P::none();
      for (int c = 0; c < part.chunks; ++c, place.advance()) {
        float4 v[PACKS];
        barrier_wait(&full[place.slot], place.parity);
        const auto bits = take_chunk<P, THREADS, PACKS>(span, part, c, memory + place.slot * CHUNK, v);
        stat = P::merge(stat, P::template local<PACKS>(v, bits));
      }
      stat = warp_merge<P>(stat);
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
      for (int c = 0; c < part.chunks; ++c, again.advance()) {
        float4 v[PACKS];
        const auto bits = take_chunk<P, THREADS, PACKS>(span, part, c, memory + again.slot * CHUNK, v);
        barrier_arrive(&empty[again.slot]);
        put_chunk<P, THREADS, PACKS>(policy, span, part, c, v, bits, ready, row);
      }
    }
  }
  __syncwarp();
  cluster_sync();  // no block ends while another one may still write into its shared memory
}

// The number of elements of the longest row that clusters of `blocks` blocks keep.
constexpr int64_t longest_kept(int blocks, int threads, int packs, int slots) {
  return int64_t(blocks) * threads * packs * slots * 4 - 4;  // a row that begins inside a pack needs one more
}

template <typename P, int THREADS, int PACKS, int SLOTS>
int launch_kept(const P& policy, int64_t rows, int64_t cols, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  auto kernel = kept_rows<P, THREADS, PACKS, SLOTS>;
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

// ---------------------------------------------------------------------------------------------------------------------
// Rows that fit into the shared memory of all blocks of the device together: all blocks work on the same row. They tell
// each other through device memory what they found, which takes microseconds: a warp of its own waits for it, and
// meanwhile the next `lag` rows are reduced, as far as they fit beside the row.

constexpr int kMostLag = 3;

template <typename P, int THREADS, int PACKS, int SLOTS>
__global__ void __launch_bounds__(THREADS + 64, 1)
    spread_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int lag, unsigned* counters,
                typename P::Stat* cells) {
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32, CHUNK = THREADS * PACKS, ROWS = 2 * (kMostLag + 1);
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[ROWS][WARPS];
  __shared__ Stat of_row[ROWS];
  __shared__ __align__(8) uint64_t full[SLOTS], empty[SLOTS], found[ROWS], known[ROWS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = int(blockIdx.x), blocks = int(gridDim.x);
  if (threadIdx.x == 0) {
    for (int k = 0; k < SLOTS; ++k) {
      barrier_init(&full[k], 32);
      barrier_init(&empty[k], THREADS);
    }
    for (int k = 0; k < ROWS; ++k) {
      barrier_init(&found[k], WARPS);
      barrier_init(&known[k], 1);
    }
    barriers_initialised();
  }
  __syncthreads();

  Place<SLOTS> place;
  if (warp == WARPS) {  // fetches chunks
    for (int64_t row = 0; row < rows; ++row) {
      const RowPart<CHUNK> part(RowSpan(row, cols), rank, blocks);
      for (int c = 0; c < part.chunks; ++c, place.advance()) {
        barrier_wait(&empty[place.slot], place.parity ^ 1);
        fetch_chunk(policy, rows * cols, part, c, memory + place.slot * CHUNK, &full[place.slot]);
      }
    }
    return;
  }
  Place<ROWS> at;
  if (warp == WARPS + 1) {  // learns what all blocks have found
    for (int64_t row = 0; row < rows; ++row, at.advance()) {
      barrier_wait(&found[at.slot], at.parity);
      const Stat mine = warp_merge<P>(lane < WARPS ? of_warps[at.slot][lane] : P::none());
      const Stat stat = meet<P>(mine, cells + row * blocks, counters + row, rank, blocks);
      if (lane == 0) {
        of_row[at.slot] = stat;
        if (rank == 0) policy.once(stat, policy.prepare(stat, row), row);
        barrier_arrive(&known[at.slot]);
      }
      __syncwarp();
    }
    return;
  }
  Place<SLOTS> again;  // the same slots once more
  Place<ROWS> before;
  for (int64_t row = 0; row < rows + lag; ++row) {
    if (row < rows) {
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
      if (lane == 0) {
        of_warps[at.slot][warp] = stat;
        barrier_arrive(&found[at.slot]);
      }
      __syncwarp();
      at.advance();
    }
    if (row >= lag) {
      const RowSpan span(row - lag, cols);
      const RowPart<CHUNK> part(span, rank, blocks);
      barrier_wait(&known[before.slot], before.parity);
      const typename P::Ready ready = policy.prepare(of_row[before.slot], row - lag);
      before.advance();
      for (int c = 0; c < part.chunks; ++c, again.advance()) {
        float4 v[PACKS];
        const auto bits = take_chunk<P, THREADS, PACKS>(span, part, c, memory + again.slot * CHUNK, v);
        barrier_arrive(&empty[again.slot]);
        put_chunk<P, THREADS, PACKS>(policy, span, part, c, v, bits, ready, row - lag);
      }
    }
  }
}

// Workspace for launch_spread on a device with up to `units` multiprocessors.
template <typename P>
int64_t spread_workspace(int64_t rows, int units = 256) {
  return ceil_div(rows * 4, 256) * 256 + rows * units * int64_t(sizeof(typename P::Stat));
}
// Whether rows fit into the shared memory of the device, and are long enough to be shared by all of it.
template <int THREADS, int PACKS, int SLOTS>
bool can_spread(int64_t cols) {
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  return units <= 256 && cols * 4 >= int64_t(units) * 32768 &&
         cols <= int64_t(units) * THREADS * PACKS * SLOTS * 4 - 8 * units;
}
template <typename P, int THREADS, int PACKS, int SLOTS>
int launch_spread(const P& policy, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  const auto s = static_cast<cudaStream_t>(stream);
  auto kernel = spread_rows<P, THREADS, PACKS, SLOTS>;
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e == cudaSuccess) e = cudaMemsetAsync(workspace, 0, size_t(rows) * 4, s);
  if (e != cudaSuccess) return int(e);
  const int64_t packs = ceil_div(cols, 4) + 1, chunks = ceil_div(ceil_div(packs, units), THREADS * PACKS);
  const int64_t lag = SLOTS / chunks - 1 < kMostLag ? SLOTS / chunks - 1 : kMostLag;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(units));
  config.blockDim = dim3(THREADS + 64);
  config.dynamicSmemBytes = BYTES;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  auto* cells = reinterpret_cast<typename P::Stat*>(static_cast<char*>(workspace) + ceil_div(rows * 4, 256) * 256);
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, int(lag), static_cast<unsigned*>(workspace), cells);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}

}  // namespace warpsmith
