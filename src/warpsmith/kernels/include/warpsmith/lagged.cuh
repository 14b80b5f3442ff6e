// Long rows: a reduction over each row and then a value for each element. The input is read twice, the second time from
// the second-level cache.
//
// A row has `parts` parts. The blocks of the device go through one list of pieces of work: the parts of a row are
// reduced, and, `lag` rows later, the parts of a row are read again and written. In between the row stays in the cache,
// because only some megabytes lie between its two reads. What the parts of a row have found is merged by the block that
// finishes the last of them, always in the same order. All blocks must run at the same time, so the launch is a
// cooperative one and the grid is as large as the device holds.
//
// The policy is that of rows.cuh, with `const float* x` as the only input that is read by row.
#pragma once
#ifndef TUNE_STORE
#define TUNE_STORE 1
#endif
#ifndef TUNE_CLUSTER
#define TUNE_CLUSTER 65536  // rows of so many elements are kept in the registers of a cluster of blocks
#endif
#ifndef TUNE_THREADS
#define TUNE_THREADS 256
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 8
#endif
#ifndef TUNE_SLOTS
#define TUNE_SLOTS 2
#endif
#ifndef TUNE_RESIDENT
#define TUNE_RESIDENT 3
#endif
#ifndef TUNE_LAG
#define TUNE_LAG 2
#endif
#ifndef TUNE_KEPT
#define TUNE_KEPT 13  // chunks of a row that a block keeps in its shared memory; 0: longer rows are read twice
#endif
#ifndef TUNE_SPREAD
#define TUNE_SPREAD 14  // the same, where all blocks of the device share a row
#endif
#ifndef TUNE_KEPT_THREADS
#define TUNE_KEPT_THREADS 512
#endif
#ifndef TUNE_KEPT_PACKS
#define TUNE_KEPT_PACKS 2
#endif
#include <warpsmith/kept.cuh>

namespace warpsmith {

// A piece of work: one part of a row, to be reduced or to be written.
struct Piece {
  int64_t row, from;  // `from`: its first pack
  int part, count;    // `count`: its packs
  bool reading, exists;
  __device__ __forceinline__ Piece(unsigned number, int64_t rows, int64_t cols, int parts, int per_part, int lag) {
    const unsigned step = number / unsigned(2 * parts);
    const int within = int(number - step * unsigned(2 * parts));
    reading = within < parts;
    part = reading ? within : within - parts;
    row = int64_t(step) - (reading ? 0 : lag);
    exists = row >= 0 && row < rows;
    const RowSpan span(row, cols);
    from = span.first + int64_t(part) * per_part;
    const int64_t left = span.first + span.packs - from;
    count = int(left < per_part ? (left < 0 ? 0 : left) : per_part);
  }
};

// Each block has SLOTS parts in shared memory: one is worked on, the others are on their way. THREADS threads work, and
// one warp more, the messenger, deals with the other blocks and with device memory, so that the others never wait for an
// answer from far away: it fetches parts, tells what the block has found, and asks what is known of a row.
template <typename P, int THREADS, int PACKS, int SLOTS, int RESIDENT>
__global__ void __launch_bounds__(THREADS + 32, RESIDENT)
    lagged_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int parts, int per_part, int lag,
                unsigned* counters, typename P::Stat* totals, typename P::Stat* cells) {
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ Stat of_warps[SLOTS][WARPS];
  __shared__ Stat of_row[SLOTS];
  __shared__ __align__(8) uint64_t arrived[SLOTS], known[SLOTS], taken[SLOTS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t elements = rows * cols;
  const unsigned pieces = unsigned((rows + lag) * 2 * parts);
  auto next = [&](unsigned number) {  // of this block, at or after `number`
    while (number < pieces && !Piece(number, rows, cols, parts, per_part, lag).exists) number += gridDim.x;
    return number;
  };
  if (threadIdx.x == 0) {
    for (int k = 0; k < SLOTS; ++k) {
      barrier_init(&arrived[k], 32);
      barrier_init(&known[k], 1);
      barrier_init(&taken[k], THREADS);
    }
    barriers_initialised();
  }
  __syncthreads();

  if (warp == WARPS) {  // the messenger
    auto fetch = [&](unsigned number, int slot) {
      const Piece piece(number, rows, cols, parts, per_part, lag);
      float4* to = memory + slot * (THREADS * PACKS);
      int count = piece.count;
      if (count > 0 && (piece.from + count) * 4 > elements) {  // the last pack of the tensor is not a whole one
        --count;
        const int64_t at = (piece.from + count) * 4 + lane;
        if (lane < 4) reinterpret_cast<float*>(to + count)[lane] = at < elements ? policy.x[at] : P::fill;
      }
      if (lane == 0)
        bulk_fetch(to, policy.x + piece.from * 4, unsigned(count) * 16, &arrived[slot]);
      else
        barrier_arrive(&arrived[slot]);
    };
    // What is done about a piece when its part has been taken from shared memory: `ahead` is fetched into its place.
    auto close = [&](unsigned number, int slot, unsigned parity, unsigned ahead) {
      barrier_wait(&taken[slot], parity);
      const Piece piece(number, rows, cols, parts, per_part, lag);
      Stat stat = piece.reading && lane < WARPS ? of_warps[slot][lane] : P::none();
      if (ahead < pieces) fetch(ahead, slot);
      if (!piece.reading) return;
      stat = warp_merge<P>(stat);
      bool last = false;
      if (lane == 0) {
        cells[piece.row * parts + piece.part] = stat;
        last = add_acquire_release(counters + piece.row, 1) == unsigned(parts - 1);
      }
      if (!__shfl_sync(kAll, last, 0)) return;
      __syncwarp();
      stat = P::none();
      for (int i = lane; i < parts; i += 32) stat = P::merge(stat, load_stat(cells + piece.row * parts + i));
      stat = warp_merge<P>(stat);
      if (lane == 0) {
        totals[piece.row] = stat;
        policy.once(stat, policy.prepare(stat, piece.row), piece.row);
        store_release(counters + piece.row, unsigned(parts) + 1);
      }
    };
    unsigned number = next(blockIdx.x), ahead = number;
    for (int k = 0; k < SLOTS && ahead < pieces; ++k, ahead = next(ahead + gridDim.x)) fetch(ahead, k);
    int slot = 0, before_slot = 0;
    unsigned parity = 0, before = pieces, before_parity = 0;  // `before`: the piece before this one, if it is not closed
    auto close_before = [&] {
      if (before == pieces) return;
      close(before, before_slot, before_parity, ahead);
      if (ahead < pieces) ahead = next(ahead + gridDim.x);
      before = pieces;
    };
    for (; number < pieces; number = next(number + gridDim.x)) {
      const Piece piece(number, rows, cols, parts, per_part, lag);
      if (!piece.reading) {
        const unsigned* counter = counters + piece.row;
        const bool ready = lane == 0 && load_acquire(counter) == unsigned(parts) + 1;
        // A block that waits has closed all pieces before: so the block with the smallest number never waits for ever.
        if (!__shfl_sync(kAll, ready, 0)) close_before();
        if (lane == 0) {
          while (load_acquire(counter) != unsigned(parts) + 1) __nanosleep(20);
          of_row[slot] = load_stat(totals + piece.row);
        }
      }
      if (lane == 0) barrier_arrive(&known[slot]);
      __syncwarp();
      close_before();
      before = number, before_slot = slot, before_parity = parity;
      if (++slot == SLOTS) slot = 0, parity ^= 1;
    }
    close_before();
    return;
  }

  int slot = 0;
  unsigned parity = 0;
  for (unsigned number = next(blockIdx.x); number < pieces; number = next(number + gridDim.x)) {
    const Piece piece(number, rows, cols, parts, per_part, lag);
    const RowSpan span(piece.row, cols);
    const bool whole = span.whole();
    barrier_wait(&arrived[slot], parity);
    const float4* held = memory + slot * (THREADS * PACKS);
    float4 values[PACKS];
    unsigned long long bits = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int i = p * THREADS + int(threadIdx.x);
      values[p] = make_float4(P::fill, P::fill, P::fill, P::fill);
      if (i < piece.count) {
        const unsigned mask = whole ? 0xfu : span.mask(piece.from + i);
        bits |= static_cast<unsigned long long>(mask) << (4 * p);
        values[p] = held[i];
        if (mask != 0xfu) {
          if (!(mask & 1u)) values[p].x = P::fill;
          if (!(mask & 2u)) values[p].y = P::fill;
          if (!(mask & 4u)) values[p].z = P::fill;
          if (!(mask & 8u)) values[p].w = P::fill;
        }
      }
    }
    barrier_wait(&known[slot], parity);
    if (piece.reading) {
      const Stat mine = warp_merge<P>(P::template local<PACKS>(values, bits));
      if (lane == 0) of_warps[slot][warp] = mine;
      barrier_arrive(&taken[slot]);
    } else {
      const Stat total = of_row[slot];
      barrier_arrive(&taken[slot]);
      const typename P::Ready ready = policy.prepare(total, piece.row);
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const int i = p * THREADS + int(threadIdx.x);
        if (i < piece.count) {
          const unsigned mask = whole ? 0xfu : unsigned(bits >> (4 * p)) & 0xfu;
          policy.store(piece.from + i, mask, values[p], ready, piece.row, (piece.from + i) * 4 - span.begin);
        }
      }
    }
    if (++slot == SLOTS) slot = 0, parity ^= 1;
  }
}

// How many parts a row of `cols` elements has.
inline int64_t parts_of(int64_t cols, int threads, int packs) {
  return ceil_div(ceil_div(cols, 4) + (cols % 4 ? 1 : 0), int64_t(threads) * packs);
}
template <typename P>
int64_t lagged_workspace(int64_t rows, int64_t cols, int threads, int packs) {
  return ceil_div(rows * 4, 256) * 256 + rows * (1 + parts_of(cols, threads, packs)) * int64_t(sizeof(typename P::Stat));
}
template <typename P, int THREADS, int PACKS, int SLOTS, int RESIDENT>
int launch_lagged(const P& policy, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  constexpr int BYTES = THREADS * PACKS * SLOTS * 16;
  const auto s = static_cast<cudaStream_t>(stream);
  auto kernel = lagged_rows<P, THREADS, PACKS, SLOTS, RESIDENT>;
  int device = 0, units = 0, resident = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e == cudaSuccess) e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, THREADS + 32, BYTES);
  if (e == cudaSuccess) e = cudaMemsetAsync(workspace, 0, size_t(rows) * 4, s);
  if (e != cudaSuccess) return int(e);
  const int64_t parts = parts_of(cols, THREADS, PACKS), blocks = int64_t(units) * resident;
  // A row is written when all blocks are TUNE_LAG pieces further on.
  static_assert(TUNE_LAG >= 1, "a row is reduced before it is written");
  const int64_t lag = ceil_div(blocks * TUNE_LAG, 2 * parts);
  const int64_t pieces = (rows + lag) * 2 * parts;
  if (pieces >= (int64_t(1) << 31)) return launch_rows_twice(policy, rows, cols, stream);
  const int64_t packs = ceil_div(cols, 4) + (cols % 4 ? 1 : 0);  // at most so many packs hold a row
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(pieces < blocks ? pieces : blocks));
  config.blockDim = dim3(THREADS + 32);
  config.dynamicSmemBytes = BYTES;
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  using Stat = typename P::Stat;
  auto* totals = reinterpret_cast<Stat*>(static_cast<char*>(workspace) + ceil_div(rows * 4, 256) * 256);
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, int(parts), int(ceil_div(packs, parts)), int(lag),
                         static_cast<unsigned*>(workspace), totals, totals + rows);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}

// Rows of any length: short ones stay in registers, longer ones in shared memory, the longest are read again from the
// cache.
template <typename P>
int64_t rows_workspace(int64_t rows, int64_t cols) {
  const bool kept = cols <= longest_kept(8, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT);
  if (cols <= TUNE_CLUSTER || kept) return 0;
  const int64_t lagged = lagged_workspace<P>(rows, cols, TUNE_THREADS, TUNE_PACKS), spread = spread_workspace<P>(rows);
  return TUNE_SPREAD > 0 && spread > lagged ? spread : lagged;
}
template <typename P>
int reduce_any_rows(const P& policy, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (cols <= TUNE_CLUSTER) return reduce_rows(policy, rows, cols, stream);
#if TUNE_KEPT > 0
  if (cols <= longest_kept(8, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
    return launch_kept<P, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(policy, rows, cols, stream);
#endif
#if TUNE_SPREAD > 0
  if (can_spread<TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_SPREAD>(cols))
    return launch_spread<P, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_SPREAD>(policy, rows, cols, workspace, stream);
#endif
  return launch_lagged<P, TUNE_THREADS, TUNE_PACKS, TUNE_SLOTS, TUNE_RESIDENT>(policy, rows, cols, workspace, stream);
}

}  // namespace warpsmith
