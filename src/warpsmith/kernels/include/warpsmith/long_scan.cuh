// Running sums and products along rows that are long and few: a row is shared by many blocks, with one read and one write of
// every element. `scan_any` takes this way where it is faster than one block for each row (`scan.cuh`).
//
// A row is cut into tiles of THREADS * PACKS packs, a tile for each block. Blocks take the tiles in their order (a counter in
// device memory), so the tiles before one belong to blocks that run already. A block scans its tile, tells the total of the
// tile, and waits for what lies before it:
//   tiles    the total of each tile
//   groups   the total of each group of 32 tiles, told by the block of the last tile of the group
//   prefixes the total of the row up to the end of each group, told by the same block
// Before a tile lie the tiles of its group (one load for each lane of a warp) and the groups before (the nearest prefix that is
// known, and the groups behind that one; another warp). The result does not depend on which prefix is known: a prefix is always
// the prefix before plus one group, so continuing from an older one gives the same bits.
//
// Inside a tile sums are float, as in `scan.cuh`; totals of warps are added in double precision. A total is told as one word:
// a double whose lowest bit says that it is there. Nothing is found by subtraction. Rows may begin anywhere: packs that are
// shared with the neighbouring rows are loaded and stored element by element.
#pragma once
#include <warpsmith/scan.cuh>

namespace warpsmith {

// --- totals as words ---

__device__ __forceinline__ unsigned long long load_total(const unsigned long long* from) {
  unsigned long long word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ void store_total(unsigned long long* to, double total) {
  const unsigned long long word = static_cast<unsigned long long>(__double_as_longlong(total)) | 1ull;
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ bool is_told(unsigned long long word) { return word & 1ull; }
__device__ __forceinline__ double total_of(unsigned long long word) {
  return __longlong_as_double(static_cast<long long>(word & ~1ull));
}

template <typename Op>
struct InDouble;
template <>
struct InDouble<Plus> {
  static __device__ __forceinline__ double apply(double a, double b) { return a + b; }
};
template <>
struct InDouble<Times> {
  static __device__ __forceinline__ double apply(double a, double b) { return a * b; }
};
// Two totals together, as a word keeps it.
template <typename Op>
__device__ __forceinline__ double joined(double a, double b) {
  return total_of(static_cast<unsigned long long>(__double_as_longlong(InDouble<Op>::apply(a, b))));
}

// The totals of `rows` rows of `tiles` tiles and `groups` groups each; all words are 0 before.
struct ScanTotals {
  unsigned* taken;  // how many tiles have a block
  unsigned long long* of_tiles;
  unsigned long long* of_groups;
  unsigned long long* prefixes;
  unsigned tiles, groups;
};
constexpr int kGroupTiles = 32;

// The total of the tiles of a group before tile number `place` of the group; called by a warp.
template <typename Op>
__device__ __forceinline__ double total_of_group(const unsigned long long* tiles, int place, int lane) {
  bool waits = lane < place;
  double total = double(Op::identity);
  while (__any_sync(kAll, waits)) {
    if (waits) {
      const unsigned long long word = load_total(tiles + lane);
      if (is_told(word)) waits = false, total = total_of(word);
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) total = InDouble<Op>::apply(total, __shfl_xor_sync(kAll, total, mask));
  return total;
}
// The total of the groups before number `group`; called by a warp.
template <typename Op>
__device__ __forceinline__ double total_before(const unsigned long long* groups, const unsigned long long* prefixes,
                                               int64_t group, int lane) {
  if (group == 0) return double(Op::identity);
  const int64_t mine = group - 1 - lane;
  unsigned long long of_group = 0, prefix = 0;
  unsigned reached, known;
  int nearest;
  do {
    if (mine >= 0) {
      if (!is_told(of_group)) of_group = load_total(groups + mine);
      if (!is_told(prefix)) prefix = load_total(prefixes + mine);
    }
    reached = __ballot_sync(kAll, is_told(prefix)), known = __ballot_sync(kAll, is_told(of_group));
    nearest = __ffs(int(reached)) - 1;
  } while (reached == 0 || (~known & ((1u << nearest) - 1)) != 0);
  double total = __shfl_sync(kAll, total_of(prefix), nearest);
  for (int k = nearest - 1; k >= 0; --k) total = joined<Op>(total, __shfl_sync(kAll, total_of(of_group), k));
  return total;
}

// --- packs ---

// Loads pack `p` of the tensor (times its mask) in the order in which it is scanned; `bits` says which elements are of the row.
template <typename Op, bool REVERSE, bool MASKED>
__device__ __forceinline__ Elements<4> load_scanned(const float* x, const bool* mask, int64_t p, unsigned bits) {
  float w[4];
  if (bits == 0xfu) {
    const float4 v = load_once(x + p * 4);
    w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    if constexpr (MASKED) {
      const uchar4 m = __ldcs(reinterpret_cast<const uchar4*>(mask + p * 4));
      w[0] *= float(m.x != 0), w[1] *= float(m.y != 0), w[2] *= float(m.z != 0), w[3] *= float(m.w != 0);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      w[i] = Op::identity;
      if (bits >> i & 1u) {
        w[i] = x[p * 4 + i];
        if constexpr (MASKED) w[i] *= mask[p * 4 + i] ? 1.0f : 0.0f;
      }
    }
  }
  Elements<4> e;
#pragma unroll
  for (int i = 0; i < 4; ++i) e.at[i] = w[REVERSE ? 3 - i : i];
  return e;
}

// --- the kernel ---

template <typename Op, bool REVERSE, bool EXCLUSIVE, bool MASKED, int THREADS, int PACKS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    scan_tiles(const float* __restrict__ x, const bool* __restrict__ mask, float* __restrict__ out, int64_t cols,
               const __grid_constant__ ScanTotals totals) {
  constexpr int WARPS = THREADS / 32, TILE = THREADS * PACKS;
  static_assert(WARPS >= 2, "one warp looks at the tiles, another at the groups");
  __shared__ unsigned taken;
  __shared__ float of_warps[WARPS];
  __shared__ double in_group, before_group;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  if (threadIdx.x == 0) taken = atomicAdd(totals.taken, 1u);
  __syncthreads();
  const unsigned of_row = taken / totals.tiles;
  const int64_t row = of_row, tile = taken - of_row * totals.tiles;
  const RowSpan span(row, cols);
  const int64_t last = span.first + span.packs - 1;
  const int64_t begin = tile * TILE, mine = begin + warp * (32 * PACKS) + lane;  // packs of the row as they are scanned
  // Whether all packs of the tile are whole: it neither begins nor ends where the row does.
  const bool whole = begin + TILE <= span.packs && (span.whole() || (begin > 0 && begin + TILE < span.packs));
  Elements<4> now[PACKS];
  if (whole) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int64_t i = mine + p * 32;
      now[p] = load_scanned<Op, REVERSE, MASKED>(x, mask, REVERSE ? last - i : span.first + i, 0xfu);
    }
  } else {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int64_t i = mine + p * 32, at = REVERSE ? last - i : span.first + i;
      now[p] = load_scanned<Op, REVERSE, MASKED>(x, mask, at, i < span.packs ? span.mask(at) : 0u);
    }
  }
  // Within the threads, then within the warp, all packs side by side.
  float before[PACKS];
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    before[p] = Op::apply(Op::apply(Op::apply(now[p].at[0], now[p].at[1]), now[p].at[2]), now[p].at[3]);
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const float other = __shfl_up_sync(kAll, before[p], step);
      if (lane >= step) before[p] = Op::apply(other, before[p]);
    }
  float run = Op::identity;
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const float all = __shfl_sync(kAll, before[p], 31);
    const float other = __shfl_up_sync(kAll, before[p], 1);
    before[p] = lane == 0 ? run : Op::apply(run, other);
    run = Op::apply(run, all);
  }
  if (lane == 0) of_warps[warp] = run;
  __syncthreads();
  double base = double(Op::identity), total = double(Op::identity);  // of the warps before this one, of the tile
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    if (w == warp) base = total;
    total = InDouble<Op>::apply(total, double(of_warps[w]));
  }
  // What lies before the tile.
  const int64_t group = tile / kGroupTiles;
  const int place = int(tile - group * kGroupTiles);
  const bool ends_group = place == kGroupTiles - 1;
  if (warp == 0) {
    unsigned long long* of_tiles = totals.of_tiles + row * int64_t(totals.tiles) + group * kGroupTiles;
    if (lane == 0) store_total(of_tiles + place, total);
    const double some = total_of_group<Op>(of_tiles, place, lane);
    if (lane == 0) {
      in_group = some;
      if (ends_group) store_total(totals.of_groups + row * int64_t(totals.groups) + group, InDouble<Op>::apply(some, total));
    }
  } else if (warp == 1) {
    const int64_t at = row * int64_t(totals.groups);
    const double some = total_before<Op>(totals.of_groups + at, totals.prefixes + at, group, lane);
    if (lane == 0) before_group = some;
  }
  __syncthreads();
  if (ends_group && threadIdx.x == 0)
    store_total(totals.prefixes + row * int64_t(totals.groups) + group,
                joined<Op>(before_group, joined<Op>(in_group, total)));
  base = InDouble<Op>::apply(InDouble<Op>::apply(before_group, in_group), base);
  const float offset = float(base);
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    float sum = Op::apply(offset, before[p]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float next = Op::apply(sum, now[p].at[i]);
      now[p].at[i] = EXCLUSIVE ? sum : next;
      sum = next;
    }
  }
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t i = mine + p * 32, at = REVERSE ? last - i : span.first + i;
    const Elements<4>& e = now[p];
    const float4 v = REVERSE ? make_float4(e.at[3], e.at[2], e.at[1], e.at[0])
                             : make_float4(e.at[0], e.at[1], e.at[2], e.at[3]);
    if (whole)
      store_once(out + at * 4, v);
    else if (i < span.packs)
      store_masked(out, at, v, span.mask(at));
  }
}

// --- the host's side ---

// The tiles of a row; a row touches at most so many packs.
__host__ inline int64_t scan_row_tiles(int64_t cols, int64_t tile) {
  return ceil_div(ceil_div(cols, 4) + (cols % 4 != 0 ? 1 : 0), tile);
}

// Whether several blocks for each row are faster than one. Estimated in microseconds on an H200: a block alone takes about 0.7
// for a chunk of 512 elements (rows that begin anywhere) or of 2048; many blocks move about 3 MB.
__host__ inline bool scan_is_long(int64_t rows, int64_t cols, bool masked) {
  if (cols < 4 * 2048 || rows * ceil_div(cols, 512) >= int64_t(1) << 31) return false;
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  if (units < 1) units = 1;
  const bool aligned = cols % 4 == 0;
  const double bytes = 8.0 * double(rows) * double(cols);
  const double chunks = double(ceil_div(rows, int64_t(16) * units)) * double(ceil_div(cols, aligned ? 2048 : 512)) * 0.7;
  const double traffic = bytes / (aligned ? 3.3e6 : masked ? 2.2e6 : 3.0e6);
  return 1.1 * (6.0 + bytes / 3.5e6) < (chunks > traffic ? chunks : traffic);
}

// Words of the workspace: one for the counter, then one for each tile, and two for each group.
template <int THREADS, int PACKS>
__host__ int64_t long_scan_bytes(int64_t rows, int64_t cols) {
  if (rows <= 0 || cols < 4 * 2048) return 0;
  const int64_t tiles = scan_row_tiles(cols, THREADS * PACKS);
  return 8 * (32 + rows * (tiles + 2 * ceil_div(tiles, kGroupTiles)));
}

// The scan of `rows` rows of `cols` elements with several blocks for each row.
template <typename Op, bool REVERSE, bool EXCLUSIVE, bool MASKED, int THREADS, int PACKS>
int scan_long(const float* x, const bool* mask, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  ScanTotals totals = {};
  totals.tiles = unsigned(scan_row_tiles(cols, THREADS * PACKS)), totals.groups = unsigned(ceil_div(totals.tiles, kGroupTiles));
  totals.taken = static_cast<unsigned*>(workspace);
  totals.of_tiles = static_cast<unsigned long long*>(workspace) + 32;
  totals.of_groups = totals.of_tiles + rows * totals.tiles;
  totals.prefixes = totals.of_groups + rows * totals.groups;
  const int64_t words = 32 + rows * (int64_t(totals.tiles) + 2 * int64_t(totals.groups));
  const cudaError_t e = cudaMemsetAsync(workspace, 0, size_t(words) * 8, s);
  if (e != cudaSuccess) return int(e);
  const unsigned blocks = unsigned(rows) * totals.tiles;
  scan_tiles<Op, REVERSE, EXCLUSIVE, MASKED, THREADS, PACKS><<<blocks, THREADS, 0, s>>>(x, mask, out, cols, totals);
  return int(cudaGetLastError());
}

// Launches the faster of the two. THREADS and PACKS are those of `scan`, the others those of `scan_long`.
template <typename Op, bool REVERSE, bool EXCLUSIVE, bool MASKED, int THREADS, int PACKS, int LONG_THREADS, int LONG_PACKS>
int scan_any(const float* x, const bool* mask, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (scan_is_long(rows, cols, MASKED))
    return scan_long<Op, REVERSE, EXCLUSIVE, MASKED, LONG_THREADS, LONG_PACKS>(x, mask, out, rows, cols, workspace, stream);
  return scan<Op, REVERSE, EXCLUSIVE, MASKED, THREADS, PACKS>(x, mask, out, rows, cols, stream);
}

}  // namespace warpsmith
