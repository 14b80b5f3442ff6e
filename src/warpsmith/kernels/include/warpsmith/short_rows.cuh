// Rows of any length: a reduction over each row of a matrix and then a value for each of its elements, with one read of
// the input. `reduce_all_rows` chooses a kernel by the length of a row. Use it where rows may be short: rows.cuh and
// lagged.cuh give a block or more to every row.
//
//   up to 2048 elements   1 to 32 lanes of a warp have a row and keep it in registers (row_groups)
//   up to 192 elements    where rows do not begin at multiples of 16 bytes: the rows of a block are one stretch of memory,
//                         which is brought to shared memory with 16-byte loads, worked on there, and written back the
//                         same way (row_tiles)
//   up to 16384 elements  a block has a row and keeps it in registers (row_blocks), where there are more than 264 rows
//   longer                the kernels of rows.cuh, and of kept.cuh and lagged.cuh beyond TUNE_CLUSTER elements
//
// The policy is that of rows.cuh, and says in addition
//   P::kStored            how many results there are for each element: 0, 1, …
//   P::kTiles             whether row_tiles may be used: `load` needs no row and no column, so that a pack may hold elements
//                         of several rows
//   p.finish(value, ready, row, column, float (&results)[kStored])   the results of one element
//   p.result(i)           the tensor of result number i; like `finish`, needed for row_tiles and kStored > 0 alone
//   P::kRaw               whether `load` returns the elements of `const float* x` as they are, and nothing else is read by
//                         row: what kept.cuh and lagged.cuh need
//   P::kPlaces            whether `load` needs the row and the column; then there are p.place(row) and
//                         p.load_at(place, pack, mask, column), which do not divide
//   P::kRowResults        whether `once` writes; then rows without elements have results, too
#pragma once
#include <type_traits>
#include <warpsmith/lagged.cuh>

#ifndef TUNE_TILE_COLS
#define TUNE_TILE_COLS 192  // rows of so many elements may be worked on in shared memory; at most 320
#endif

namespace warpsmith {

constexpr int kShortThreads = 128;
constexpr int kShortPacks = 512;  // a row of at most so many packs belongs to one warp

// What N sets of elements have in common with those of the other lanes of their rows; `lanes` is a power of two.
template <typename P, int N>
__device__ __forceinline__ void merge_lanes(typename P::Stat (&stats)[N], int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
#pragma unroll
    for (int k = 0; k < N; ++k) stats[k] = P::merge(stats[k], shuffle_xor(stats[k], mask));
  }
}

// Which elements of a row's pack number i belong to the row, as RowSpan::mask says it, in fewer instructions.
struct Ends {
  int count, head, tail;  // packs, and elements of the first and the last one that belong to other rows
  __device__ __forceinline__ explicit Ends(const RowSpan& span)
      : count(int(span.packs)), head(int(span.begin & 3)), tail(int(-span.end & 3)) {}
  __device__ __forceinline__ unsigned mask(int i) const {
    return (0xfu << (i == 0 ? head : 0)) & (0xfu >> (i == count - 1 ? tail : 0));
  }
};

template <typename P>
__device__ __forceinline__ auto place_of(const P& policy, int64_t row, std::true_type) {
  return policy.place(row);
}
template <typename P>
__device__ __forceinline__ int place_of(const P&, int64_t, std::false_type) {
  return 0;
}

// 2^shift lanes have a row, ROWS rows at a time, each lane PACKS packs of a row. WHOLE: rows begin at multiples of 16 bytes.
template <typename P, int PACKS, int ROWS, bool WHOLE, int RESIDENT>
__global__ void __launch_bounds__(kShortThreads, RESIDENT)
    row_groups(const __grid_constant__ P policy, int64_t rows, int64_t cols, int shift) {
  const int lanes = 1 << shift, lane = int(threadIdx.x) & (lanes - 1);
  const int groups = kShortThreads >> shift;  // of the block
  const int64_t first = int64_t(blockIdx.x) * (groups * ROWS) + (int(threadIdx.x) >> shift);
  float4 values[ROWS][PACKS];
  unsigned long long bits[ROWS];
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const int64_t row = first + k * groups;
    const RowSpan span(row, cols);
    const Ends ends(span);
    const int count = row < rows ? ends.count : 0;
    const auto place = place_of(policy, row < rows ? row : 0, std::bool_constant<P::kPlaces>());
    bits[k] = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int i = p * lanes + lane;
      values[k][p] = make_float4(P::fill, P::fill, P::fill, P::fill);
      if (i < count) {
        const unsigned mask = WHOLE ? 0xfu : ends.mask(i);
        bits[k] |= static_cast<unsigned long long>(mask) << (4 * p);
        if constexpr (P::kPlaces)
          values[k][p] = policy.load_at(place, span.first + i, mask, (span.first + i) * 4 - span.begin);
        else
          values[k][p] = policy.load(span.first + i, mask);
      }
    }
  }
  typename P::Stat stats[ROWS];
#pragma unroll
  for (int k = 0; k < ROWS; ++k) stats[k] = P::template local<PACKS>(values[k], bits[k]);
  merge_lanes<P>(stats, lanes);
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const int64_t row = first + k * groups;
    if (row >= rows) continue;
    const RowSpan span(row, cols);
    const typename P::Ready ready = policy.prepare(stats[k], row);
    if (lane == 0) policy.once(stats[k], ready, row);
    if constexpr (P::kStored > 0) {
      const Ends ends(span);
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const int i = p * lanes + lane;
        const unsigned mask = WHOLE ? 0xfu : ends.mask(i);
        if (i < ends.count)
          policy.store(span.first + i, mask, values[k][p], ready, row, (span.first + i) * 4 - span.begin);
      }
    }
  }
}

// A block has a row and keeps it in registers, each thread PACKS packs.
template <typename P, int THREADS, int PACKS, int RESIDENT>
__global__ void __launch_bounds__(THREADS, RESIDENT) row_blocks(const __grid_constant__ P policy, int64_t cols) {
  constexpr int WARPS = THREADS / 32;
  __shared__ typename P::Stat of_warps[WARPS];
  const int lane = threadIdx.x % 32;
  const int64_t row = blockIdx.x;
  const RowSpan span(row, cols);
  const Ends ends(span);
  const auto place = place_of(policy, row, std::bool_constant<P::kPlaces>());
  float4 values[PACKS];
  unsigned long long bits = 0;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int i = p * THREADS + int(threadIdx.x);
    values[p] = make_float4(P::fill, P::fill, P::fill, P::fill);
    if (i < ends.count) {
      const unsigned mask = ends.mask(i);
      bits |= static_cast<unsigned long long>(mask) << (4 * p);
      if constexpr (P::kPlaces)
        values[p] = policy.load_at(place, span.first + i, mask, (span.first + i) * 4 - span.begin);
      else
        values[p] = policy.load(span.first + i, mask);
    }
  }
  typename P::Stat stats[1] = {P::template local<PACKS>(values, bits)};
  merge_lanes<P>(stats, 32);
  if (lane == 0) of_warps[threadIdx.x / 32] = stats[0];
  __syncthreads();
  stats[0] = of_warps[lane % WARPS];
  merge_lanes<P>(stats, WARPS);
  const typename P::Ready ready = policy.prepare(stats[0], row);
  if (threadIdx.x == 0) policy.once(stats[0], ready, row);
  if constexpr (P::kStored > 0) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int i = p * THREADS + int(threadIdx.x);
      if (i < ends.count)
        policy.store(span.first + i, ends.mask(i), values[p], ready, row, (span.first + i) * 4 - span.begin);
    }
  }
}

// A block has `per_block` rows, a multiple of four, so that they begin at a multiple of 16 bytes. 2^shift lanes have a row,
// one lane where ONE says so; each has at most 4 * PACKS of its elements in registers. Neighbouring lanes have neighbouring
// elements. The results take the places of the elements: a lane writes no place that another one reads.
template <typename P, int PACKS, bool ONE>
__global__ void __launch_bounds__(kShortThreads, PACKS <= 2 ? 12 : P::kRaw ? 8 : 7)
    row_tiles(const __grid_constant__ P policy, int64_t rows, int cols, int shift, int per_block) {
  constexpr int AHEAD = 6;  // packs that a thread loads before it uses the first
  constexpr int STORED = P::kStored;
  extern __shared__ __align__(128) float4 memory[];
  const int64_t first = int64_t(blockIdx.x) * per_block;
  const int here = int(rows - first < per_block ? rows - first : per_block);
  const int elements = here * cols, packs = (elements + 3) / 4;
  const int64_t from = first * cols / 4;  // the first pack
  const int room = per_block * cols;      // elements of shared memory for each result
  const bool full = here == per_block;    // otherwise the last pack may be the end of the tensor
  float* const tile = reinterpret_cast<float*>(memory);
  auto mask_of = [&](int i) { return i * 4 + 4 <= elements ? 0xfu : 0xfu >> (i * 4 + 4 - elements); };
  if (full) {
    for (int begin = int(threadIdx.x); begin < packs; begin += kShortThreads * AHEAD) {
      float4 v[AHEAD];
#pragma unroll
      for (int u = 0; u < AHEAD; ++u)
        if (begin + u * kShortThreads < packs) v[u] = policy.load(from + begin + u * kShortThreads, 0xfu);
#pragma unroll
      for (int u = 0; u < AHEAD; ++u)
        if (begin + u * kShortThreads < packs) memory[begin + u * kShortThreads] = v[u];
    }
  } else {
#pragma unroll 1
    for (int i = int(threadIdx.x); i < packs; i += kShortThreads) memory[i] = policy.load(from + i, mask_of(i));
  }
  __syncthreads();
  const int lanes = ONE ? 1 : 1 << shift, lane = ONE ? 0 : int(threadIdx.x) & (lanes - 1);
  const int groups = ONE ? kShortThreads : kShortThreads >> shift;
  for (int r0 = 0; r0 < here; r0 += groups) {
    const int r = r0 + (ONE ? int(threadIdx.x) : int(threadIdx.x) >> shift);
    const bool exists = r < here;
    float* const mine = tile + r * cols + lane;
    const int count = exists ? (ONE ? cols : (cols - lane + lanes - 1) >> shift) : 0;  // elements of this lane
    float4 values[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] = p * 4 + e < count ? mine[(p * 4 + e) * lanes] : P::fill;
      values[p] = make_float4(v[0], v[1], v[2], v[3]);
    }
    typename P::Stat stats[1] = {P::template local<PACKS>(values, (1ull << count) - 1ull)};
    merge_lanes<P>(stats, lanes);
    if (!exists) continue;
    const typename P::Ready ready = policy.prepare(stats[0], first + r);
    if (lane == 0) policy.once(stats[0], ready, first + r);
    if constexpr (STORED > 0) {
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (p * 4 + e >= count) continue;
          float results[STORED];
          policy.finish(part(values[p], e), ready, first + r, (p * 4 + e) * lanes + lane, results);
#pragma unroll
          for (int s = 0; s < STORED; ++s) mine[s * room + (p * 4 + e) * lanes] = results[s];
        }
      }
    }
  }
  if constexpr (STORED > 0) {
    __syncthreads();
#pragma unroll
    for (int s = 0; s < STORED; ++s) {
      float* const to = policy.result(s) + from * 4;
      const float4* const held = memory + s * (room / 4);
      if (full) {
#pragma unroll 4
        for (int i = int(threadIdx.x); i < packs; i += kShortThreads) store_once(to + i * 4, held[i]);
      } else {
#pragma unroll 1
        for (int i = int(threadIdx.x); i < packs; i += kShortThreads) store_masked(to, i, held[i], mask_of(i));
      }
    }
  }
}

// Rows without elements.
template <typename P>
__global__ void __launch_bounds__(kShortThreads) row_nothing(const __grid_constant__ P policy, int64_t rows) {
  const int64_t row = int64_t(blockIdx.x) * kShortThreads + threadIdx.x;
  if (row < rows) policy.once(P::none(), policy.prepare(P::none(), row), row);
}

template <typename P, int PACKS, int ROWS, bool WHOLE, int RESIDENT>
int launch_groups(const P& policy, int64_t rows, int64_t cols, int shift, void* stream) {
  const int64_t blocks = ceil_div(rows, int64_t(kShortThreads >> shift) * ROWS);
  row_groups<P, PACKS, ROWS, WHOLE, RESIDENT>
      <<<unsigned(blocks), kShortThreads, 0, static_cast<cudaStream_t>(stream)>>>(policy, rows, cols, shift);
  return int(cudaGetLastError());
}
// Rows of at most kShortPacks packs, by the lanes of a warp.
template <typename P, bool WHOLE>
int launch_groups(const P& policy, int64_t rows, int64_t cols, void* stream) {
  const int64_t packs = ceil_div(cols, 4) + (WHOLE ? 0 : 1);  // at most so many packs hold a row
  int shift = 0;
  while (shift < 5 && (1 << shift) < packs) ++shift;
  constexpr int MANY = P::kRaw ? 10 : 8, SOME = P::kRaw ? 8 : 6;  // blocks of a multiprocessor, so that registers suffice
  if constexpr (WHOLE) {  // others have a tile
    if (packs <= 32) return launch_groups<P, 1, 4, WHOLE, MANY>(policy, rows, cols, shift, stream);
  }
  if (packs <= 64) return launch_groups<P, 2, 2, WHOLE, MANY>(policy, rows, cols, shift, stream);
  if (packs <= 128) return launch_groups<P, 4, 2, WHOLE, SOME>(policy, rows, cols, shift, stream);
  if (packs <= 256) return launch_groups<P, 8, 1, WHOLE, SOME>(policy, rows, cols, shift, stream);
  return launch_groups<P, 16, 1, WHOLE, 4>(policy, rows, cols, shift, stream);
}
template <typename P, int THREADS, int PACKS, int RESIDENT>
int launch_blocks(const P& policy, int64_t rows, int64_t cols, void* stream) {
  row_blocks<P, THREADS, PACKS, RESIDENT>
      <<<unsigned(rows), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(policy, cols);
  return int(cudaGetLastError());
}
template <typename P, int PACKS, bool ONE>
int launch_tiles(const P& policy, int64_t rows, int cols, int shift, void* stream) {
  const int groups = kShortThreads >> shift;  // at least 8, so that per_block is a multiple of four
  int per_block = groups;
  while (per_block * cols < 2048 && per_block < 1024) per_block += groups;  // at least 8 KB
  constexpr int TILES = P::kStored > 1 ? P::kStored : 1;
  const int bytes = per_block * cols * 4 * TILES;
  auto kernel = row_tiles<P, PACKS, ONE>;
  if (bytes > 48 << 10) {
    const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (e != cudaSuccess) return int(e);
  }
  kernel<<<unsigned(ceil_div(rows, per_block)), kShortThreads, bytes, static_cast<cudaStream_t>(stream)>>>(
      policy, rows, cols, shift, per_block);
  return int(cudaGetLastError());
}
// Rows of at most 320 elements.
template <typename P>
int launch_tiles(const P& policy, int64_t rows, int64_t cols, void* stream) {
  const int c = int(cols);
  if (c <= 4) return launch_tiles<P, 1, true>(policy, rows, c, 0, stream);
  if (c <= 8) return launch_tiles<P, 2, true>(policy, rows, c, 0, stream);
  if (c <= 20) return launch_tiles<P, 5, true>(policy, rows, c, 0, stream);
  int shift = 0;
  while ((20 << shift) < c) ++shift;
  return launch_tiles<P, 5, false>(policy, rows, c, shift, stream);
}

// Workspace for reduce_all_rows.
template <typename P>
int64_t all_rows_workspace(int64_t rows, int64_t cols) {
  if constexpr (P::kRaw)
    return rows_workspace<P>(rows, cols);
  else
    return 0;
}
template <typename P>
int reduce_all_rows(const P& policy, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (rows <= 0) return 0;
  if (cols <= 0) {
    if constexpr (P::kRowResults)
      row_nothing<P><<<unsigned(ceil_div(rows, kShortThreads)), kShortThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          policy, rows);
    return int(cudaGetLastError());
  }
  const bool whole = cols % 4 == 0;
  if constexpr (P::kTiles) {
    if (!whole && cols <= TUNE_TILE_COLS) return launch_tiles(policy, rows, cols, stream);
  }
  const int64_t packs = ceil_div(cols, 4) + (whole ? 0 : 1);  // at most so many packs hold a row
  if (packs <= kShortPacks)
    return whole ? launch_groups<P, true>(policy, rows, cols, stream) : launch_groups<P, false>(policy, rows, cols, stream);
  auto need = [&](int64_t per_block) {
    int blocks = 1;
    while (blocks * per_block < packs) blocks *= 2;
    return blocks;
  };
  if (rows <= 264 && packs <= 8 * 512 * 8 && (!P::kRaw || cols <= TUNE_CLUSTER)) {  // few rows: spread them
    int blocks = 1;
    while (blocks < 8 && (blocks * 4096 < packs || (rows * blocks <= 132 && blocks * 512 < packs))) blocks *= 2;
    if (ceil_div(packs, blocks) <= 512) return launch_rows<P, 256, 2, 4>(policy, rows, cols, blocks, stream);
    return launch_rows<P, 512, 8, 2>(policy, rows, cols, blocks, stream);
  }
  if (packs <= 1024) return launch_blocks<P, 256, 4, 5>(policy, rows, cols, stream);
  if (packs <= 2048) return launch_blocks<P, 256, 8, 4>(policy, rows, cols, stream);
  if (packs <= 4096) return launch_blocks<P, 512, 8, 2>(policy, rows, cols, stream);
  if constexpr (P::kRaw) {
    if (cols <= TUNE_CLUSTER) return launch_rows<P, 256, 8, 4>(policy, rows, cols, need(256 * 8), stream);
#if TUNE_KEPT > 0
    if (cols <= longest_kept(8, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT))
      return launch_kept<P, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_KEPT>(policy, rows, cols, stream);
#endif
#if TUNE_SPREAD > 0
    if (can_spread<TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_SPREAD>(cols))
      return launch_spread<P, TUNE_KEPT_THREADS, TUNE_KEPT_PACKS, TUNE_SPREAD>(policy, rows, cols, workspace, stream);
#endif
    return launch_lagged<P, TUNE_THREADS, TUNE_PACKS, TUNE_SLOTS, TUNE_RESIDENT>(policy, rows, cols, workspace, stream);
  } else {
    if (packs <= 16 * 256 * 8) return launch_rows<P, 256, 8, 4>(policy, rows, cols, need(256 * 8), stream);
    if (packs <= 16 * 1024 * 6) return launch_rows<P, 1024, 6, 1>(policy, rows, cols, 16, stream);
    return launch_rows_twice(policy, rows, cols, stream);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Parts of policies.

// SoftmaxStat with powers below 2^-126 taken as 0, which saves three instructions each.
struct QuickSoftmax {
  using Stat = SoftmaxStat::Stat;
  static __device__ __forceinline__ Stat none() { return {-INFINITY, 0.0f}; }
  static __device__ __forceinline__ float power(float x, float most) {
    const float t = (x - most) * kLog2e;
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(t));
    return e;
  }
  static __device__ __forceinline__ float rate(float from, float to) { return from == to ? 1.0f : power(from, to); }
  static __device__ __forceinline__ Stat merge(const Stat& a, const Stat& b) {
    const float most = max_nan(a.most, b.most);
    return {most, a.sum * rate(a.most, most) + b.sum * rate(b.most, most)};
  }
};

// Four neighbouring elements of another tensor, the first at index `at`; those outside the mask become 0.
__device__ __forceinline__ float4 load_beside(const float* base, int64_t at, unsigned mask) {
  if (mask == 0xfu && (at & 3) == 0) return load_shared_use(base + at);
  float4 v;
  v.x = mask & 1u ? __ldg(base + at + 0) : 0.0f;
  v.y = mask & 2u ? __ldg(base + at + 1) : 0.0f;
  v.z = mask & 4u ? __ldg(base + at + 2) : 0.0f;
  v.w = mask & 8u ? __ldg(base + at + 3) : 0.0f;
  return v;
}
// The same for booleans: 0 or 1.
__device__ __forceinline__ float4 load_beside(const bool* base, int64_t at, unsigned mask) {
  const auto* from = reinterpret_cast<const unsigned char*>(base) + at;
  if (mask == 0xfu && (at & 3) == 0) {
    const unsigned word = __ldg(reinterpret_cast<const unsigned*>(from));
    return make_float4(word & 0xffu ? 1.0f : 0.0f, word & 0xff00u ? 1.0f : 0.0f, word & 0xff0000u ? 1.0f : 0.0f,
                       word & 0xff000000u ? 1.0f : 0.0f);
  }
  float4 v;
  v.x = mask & 1u && from[0] ? 1.0f : 0.0f;
  v.y = mask & 2u && from[1] ? 1.0f : 0.0f;
  v.z = mask & 4u && from[2] ? 1.0f : 0.0f;
  v.w = mask & 8u && from[3] ? 1.0f : 0.0f;
  return v;
}

}  // namespace warpsmith
