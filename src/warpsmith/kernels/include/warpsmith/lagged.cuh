// Long rows: a reduction over each row and then a value for each element. The input is read twice, the second time from
// the second-level cache.
//
// A row has `parts` parts, each small enough for the registers of a block. The blocks of the device go through one list
// of pieces of work: the parts of a row are reduced, and, `lag` rows later, the parts of a row are read again and
// written. In between the row stays in the cache, because only a few megabytes lie between its two reads. What the parts
// of a row have found is merged by the block that finishes the last of them, always in the same order. A block that
// writes a part loads it first and then asks for what is known of its row, which is nearly always there by then. All
// blocks must run at the same time, so the launch is a cooperative one and the grid is as large as the device holds.
//
// The policy is that of rows.cuh.
#pragma once
#ifndef TUNE_LOAD
#define TUNE_LOAD 1
#endif
#ifndef TUNE_STORE
#define TUNE_STORE 1
#endif
#include <warpsmith/rows.cuh>

namespace warpsmith {

__device__ __forceinline__ unsigned load_acquire(const unsigned* from) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(unsigned* to, unsigned v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ unsigned add_acquire_release(unsigned* to, unsigned v) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(to), "r"(v) : "memory");
  return before;
}
// A Stat that another block has written.
template <typename Stat>
__device__ __forceinline__ Stat load_stat(const Stat* from) {
  union {
    Stat stat;
    unsigned words[sizeof(Stat) / 4];
  } cell;
#pragma unroll
  for (int w = 0; w < int(sizeof(Stat) / 4); ++w) cell.words[w] = __ldcg(reinterpret_cast<const unsigned*>(from) + w);
  return cell.stat;
}

template <typename P, int THREADS, int PACKS, int RESIDENT>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    lagged_rows(const __grid_constant__ P policy, int64_t rows, int64_t cols, int parts, int lag, unsigned* counters,
                typename P::Stat* totals, typename P::Stat* cells) {
  using Stat = typename P::Stat;
  constexpr int WARPS = THREADS / 32;
  __shared__ Stat of_warps[2][WARPS];
  __shared__ Stat of_row[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t pieces = (rows + lag) * 2 * parts;
  int turn = 0;  // shared memory of one piece of work is not that of the next
  for (int64_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int64_t step = piece / (2 * parts);
    const int within = int(piece - step * (2 * parts));
    const bool reading = within < parts;
    const int part_number = reading ? within : within - parts;
    const int64_t row = reading ? step : step - lag;
    if (row < 0 || row >= rows) continue;
    turn ^= 1;

    const RowSpan span(row, cols);
    const int per_part = int((span.packs + parts - 1) / parts);
    const int64_t from = span.first + int64_t(part_number) * per_part;
    const int64_t left = span.first + span.packs - from;
    const int count = int(left < per_part ? (left < 0 ? 0 : left) : per_part);
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
    if (reading) {
      Stat stat = warp_merge<P>(P::template local<PACKS>(values, bits));
      if (lane == 0) of_warps[turn][warp] = stat;
      __syncthreads();
      if (warp == 0) {
        stat = warp_merge<P>(lane < WARPS ? of_warps[turn][lane] : P::none());
        bool last = false;
        if (lane == 0) {
          cells[row * parts + part_number] = stat;
          last = add_acquire_release(counters + row, 1) == unsigned(parts - 1);
        }
        if (__shfl_sync(kAll, last, 0)) {
          stat = P::none();
          for (int i = lane; i < parts; i += 32) stat = P::merge(stat, load_stat(cells + row * parts + i));
          stat = warp_merge<P>(stat);
          if (lane == 0) {
            totals[row] = stat;
            policy.once(stat, policy.prepare(stat, row), row);
            store_release(counters + row, unsigned(parts) + 1);
          }
        }
      }
    } else {
      if (threadIdx.x == 0) {
        while (load_acquire(counters + row) != unsigned(parts) + 1) __nanosleep(20);
        of_row[turn] = load_stat(totals + row);
      }
      __syncthreads();
      const typename P::Ready ready = policy.prepare(of_row[turn], row);
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const int i = p * THREADS + int(threadIdx.x);
        if (i < count) {
          const unsigned mask = whole ? 0xfu : unsigned(bits >> (4 * p)) & 0xfu;
          policy.store(from + i, mask, values[p], ready, row, (from + i) * 4 - span.begin);
        }
      }
    }
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
template <typename P, int THREADS, int PACKS, int RESIDENT>
int launch_lagged(const P& policy, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (rows <= 0 || cols <= 0) return 0;
  const auto s = static_cast<cudaStream_t>(stream);
  auto kernel = lagged_rows<P, THREADS, PACKS, RESIDENT>;
  int device = 0, units = 0, resident = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, THREADS, 0);
  if (e != cudaSuccess) return int(e);
  e = cudaMemsetAsync(workspace, 0, size_t(rows) * 4, s);
  if (e != cudaSuccess) return int(e);
  const int64_t parts = parts_of(cols, THREADS, PACKS), blocks = int64_t(units) * resident;
  // The blocks that work at a time must not reach from the first read of a row to its second.
  const int64_t lag = ceil_div(blocks, 2 * parts);
  const int64_t pieces = (rows + lag) * 2 * parts;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(pieces < blocks ? pieces : blocks));
  config.blockDim = dim3(THREADS);
  config.stream = s;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeCooperative;
  attribute[0].val.cooperative = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  using Stat = typename P::Stat;
  auto* totals = reinterpret_cast<Stat*>(static_cast<char*>(workspace) + ceil_div(rows * 4, 256) * 256);
  e = cudaLaunchKernelEx(&config, kernel, policy, rows, cols, int(parts), int(lag), static_cast<unsigned*>(workspace),
                         totals, totals + rows);
  return int(e != cudaSuccess ? e : cudaGetLastError());
}

}  // namespace warpsmith
