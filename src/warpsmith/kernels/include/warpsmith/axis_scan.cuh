// Running sums and products over the middle axis of x[batch, rows, cols], forwards, backwards, exclusive, for any sizes.
// `scan_axis` chooses a kernel by the sizes:
//
//   walk_columns  a thread has a column, or four neighbouring ones, and walks along the rows: many columns or few rows
//   scan_columns  a block has 8 or 32 neighbouring columns. The rows of a chunk are shared by groups of threads: each sums its
//                 rows, shuffles and shared memory tell it what lies before them, and it adds its rows again, which it still has
//
// Where there are fewer blocks than the device has room for, the rows are cut into parts: `total_parts` reads the elements once
// more and tells the total of each part in each column, and the block of a part adds the totals of the parts before, in their
// order. The result is the same in every run.
//
// Totals are added in double precision, each result is rounded once. Nothing is found by subtraction, so infinities do not turn
// earlier or excluded elements into NaN.
#pragma once
#include <warpsmith/long_scan.cuh>

namespace warpsmith {
namespace axis_scan {

// VEC neighbouring columns of a row.
template <int VEC>
__device__ __forceinline__ Elements<VEC> load_columns(const float* from) {
  Elements<VEC> e;
  if constexpr (VEC == 4) {
    const float4 v = load_once(from);
    e.at[0] = v.x, e.at[1] = v.y, e.at[2] = v.z, e.at[3] = v.w;
  } else if constexpr (VEC == 2) {
    const float2 v = __ldg(reinterpret_cast<const float2*>(from));
    e.at[0] = v.x, e.at[1] = v.y;
  } else {
    e.at[0] = __ldg(from);
  }
  return e;
}
template <int VEC>
__device__ __forceinline__ void store_columns(float* to, const Elements<VEC>& e) {
  if constexpr (VEC == 4)
    store_once(to, make_float4(e.at[0], e.at[1], e.at[2], e.at[3]));
  else if constexpr (VEC == 2)
    put(reinterpret_cast<float2*>(to), make_float2(e.at[0], e.at[1]));
  else
    *to = e.at[0];
}
// Takes one row: `total` is that of the rows before it, and of it afterwards. Returns the results of the row.
template <typename Op, bool EXCLUSIVE, int VEC>
__device__ __forceinline__ Elements<VEC> take_row(double (&total)[VEC], const Elements<VEC>& row) {
  Elements<VEC> result;
#pragma unroll
  for (int c = 0; c < VEC; ++c) {
    if (EXCLUSIVE) result.at[c] = float(total[c]);
    total[c] = InDouble<Op>::apply(total[c], double(row.at[c]));
    if (!EXCLUSIVE) result.at[c] = float(total[c]);
  }
  return result;
}

// --- a thread for each column ---

constexpr int kWalkThreads = 128;

template <typename Op, bool REVERSE, bool EXCLUSIVE, int VEC>
__global__ void __launch_bounds__(kWalkThreads)
    walk_columns(const float* __restrict__ x, float* __restrict__ out, int64_t columns, int64_t rows, int64_t cols) {
  constexpr int AHEAD = 8;  // rows on their way
  const int64_t column = (int64_t(blockIdx.x) * kWalkThreads + threadIdx.x) * VEC;
  if (column >= columns) return;
  const int64_t matrix = column / cols, first = matrix * rows * cols + (column - matrix * cols);
  const int64_t step = REVERSE ? -cols : cols, begin = REVERSE ? first + (rows - 1) * cols : first;
  double total[VEC];
#pragma unroll
  for (int c = 0; c < VEC; ++c) total[c] = double(Op::identity);
  Elements<VEC> now[AHEAD];
  int64_t row = 0, at = begin;
  for (; row + AHEAD <= rows; row += AHEAD, at += AHEAD * step) {
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) now[u] = load_columns<VEC>(x + at + u * step);
#pragma unroll
    for (int u = 0; u < AHEAD; ++u) store_columns<VEC>(out + at + u * step, take_row<Op, EXCLUSIVE, VEC>(total, now[u]));
  }
  for (; row < rows; ++row, at += step)
    store_columns<VEC>(out + at, take_row<Op, EXCLUSIVE, VEC>(total, load_columns<VEC>(x + at)));
}

// --- a block for neighbouring columns ---

constexpr int kThreads = 256, kWarps = kThreads / 32;

// How the work is cut: blocks for `tiles` groups of neighbouring columns and `parts` parts of the rows of each matrix.
struct Cut {
  int64_t rows, cols, part_rows;
  unsigned tiles, parts;
};

// What a thread of a block has: VEC columns, and ROWS rows of each chunk. LANES threads have the columns of a block.
template <bool REVERSE, int VEC, int LANES, int ROWS>
struct Share {
  static constexpr int GROUPS = 32 / LANES;             // of a warp
  static constexpr int CHUNK = kWarps * GROUPS * ROWS;  // rows
  int64_t at, step;                                     // of the thread's first row in the chunk; to the next row
  int64_t totals;                                       // of the matrix, in the first part
  int left, lane, group, warp;                          // rows from that row on
  unsigned part;
  bool there;  // whether the thread has columns
  __device__ __forceinline__ explicit Share(const Cut& cut) {
    const unsigned block = blockIdx.x / cut.tiles, tile = blockIdx.x - block * cut.tiles, matrix = block / cut.parts;
    part = block - matrix * cut.parts;
    lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) % 32 / LANES, warp = int(threadIdx.x) / 32;
    const int64_t column = (int64_t(tile) * LANES + lane) * VEC, begin = int64_t(part) * cut.part_rows;
    const int64_t first = begin + (warp * GROUPS + group) * ROWS, behind = cut.rows - begin;
    there = column < cut.cols;
    left = there ? int(behind < cut.part_rows ? behind : cut.part_rows) - int(first - begin) : 0;
    step = REVERSE ? -cut.cols : cut.cols;
    at = (int64_t(matrix) * cut.rows + (REVERSE ? cut.rows - 1 - first : first)) * cut.cols + column;
    totals = int64_t(matrix) * cut.parts * cut.cols + column;
  }
  __device__ __forceinline__ void advance() { at += CHUNK * step, left -= CHUNK; }
  __device__ __forceinline__ void load(const float* x, float identity, Elements<VEC> (&to)[ROWS]) const {
#pragma unroll
    for (int u = 0; u < ROWS; ++u) {
      if (u < left) {
        to[u] = load_columns<VEC>(x + at + u * step);
      } else {
#pragma unroll
        for (int c = 0; c < VEC; ++c) to[u].at[c] = identity;
      }
    }
  }
};
// The rows of a block's part.
__device__ __forceinline__ int rows_of(const Cut& cut, unsigned part) {
  const int64_t behind = cut.rows - int64_t(part) * cut.part_rows;
  return int(behind < cut.part_rows ? behind : cut.part_rows);
}

// The total of each part in each column: totals[matrix, part, column].
template <typename Op, bool REVERSE, int VEC, int LANES, int ROWS>
__global__ void __launch_bounds__(kThreads)
    total_parts(const float* __restrict__ x, double* __restrict__ totals, const __grid_constant__ Cut cut) {
  using Mine = Share<REVERSE, VEC, LANES, ROWS>;
  __shared__ double of_groups[kWarps * Mine::GROUPS][LANES * VEC];
  Mine mine(cut);
  const int rows = rows_of(cut, mine.part);
  double total[VEC];
#pragma unroll
  for (int c = 0; c < VEC; ++c) total[c] = double(Op::identity);
  for (int start = 0; start < rows; start += Mine::CHUNK, mine.advance()) {
    Elements<VEC> now[ROWS];
    mine.load(x, Op::identity, now);
#pragma unroll
    for (int u = 0; u < ROWS; ++u) take_row<Op, false, VEC>(total, now[u]);
  }
#pragma unroll
  for (int c = 0; c < VEC; ++c) of_groups[mine.warp * Mine::GROUPS + mine.group][mine.lane * VEC + c] = total[c];
  __syncthreads();
  if (mine.warp == 0 && mine.group == 0 && mine.there) {
    for (int g = 1; g < kWarps * Mine::GROUPS; ++g)
#pragma unroll
      for (int c = 0; c < VEC; ++c) total[c] = InDouble<Op>::apply(total[c], of_groups[g][mine.lane * VEC + c]);
#pragma unroll
    for (int c = 0; c < VEC; ++c) totals[mine.totals + mine.part * cut.cols + c] = total[c];
  }
}

template <typename Op, bool REVERSE, bool EXCLUSIVE, int VEC, int LANES, int ROWS>
__global__ void __launch_bounds__(kThreads, 4)
    scan_columns(const float* __restrict__ x, float* __restrict__ out, const double* __restrict__ totals,
                 const __grid_constant__ Cut cut) {
  using Mine = Share<REVERSE, VEC, LANES, ROWS>;
  __shared__ double of_warps[2][kWarps][LANES * VEC];
  Mine mine(cut);
  const int rows = rows_of(cut, mine.part);
  double carry[VEC];  // of the rows before the chunk
#pragma unroll
  for (int c = 0; c < VEC; ++c) carry[c] = double(Op::identity);
  if (mine.there)
    for (unsigned p = 0; p < mine.part; ++p)
#pragma unroll
      for (int c = 0; c < VEC; ++c) carry[c] = InDouble<Op>::apply(carry[c], totals[mine.totals + p * cut.cols + c]);
  Elements<VEC> now[ROWS];
  mine.load(x, Op::identity, now);
  int turn = 0;
  for (int start = 0; start < rows; start += Mine::CHUNK, turn ^= 1) {
    const int64_t at = mine.at;
    const int left = mine.left;
    Elements<VEC> ahead[ROWS];
    mine.advance();
    mine.load(x, Op::identity, ahead);
    double total[VEC], before[VEC];  // of the group's rows; of the warp's groups before
#pragma unroll
    for (int c = 0; c < VEC; ++c) total[c] = double(Op::identity);
#pragma unroll
    for (int u = 0; u < ROWS; ++u) take_row<Op, false, VEC>(total, now[u]);
#pragma unroll
    for (int step = LANES; step < 32; step *= 2)
#pragma unroll
      for (int c = 0; c < VEC; ++c) {
        const double other = __shfl_up_sync(kAll, total[c], step);
        if (mine.group * LANES >= step) total[c] = InDouble<Op>::apply(other, total[c]);
      }
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      before[c] = double(Op::identity);
      if constexpr (LANES < 32) {
        const double other = __shfl_up_sync(kAll, total[c], LANES);
        if (mine.group > 0) before[c] = other;
      }
      if (mine.group == Mine::GROUPS - 1) of_warps[turn][mine.warp][mine.lane * VEC + c] = total[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < VEC; ++c) {
      double base = carry[c];
#pragma unroll 2
      for (int w = 0; w < kWarps; ++w) {
        if (w == mine.warp) base = carry[c];
        carry[c] = InDouble<Op>::apply(carry[c], of_warps[turn][w][mine.lane * VEC + c]);
      }
      before[c] = InDouble<Op>::apply(base, before[c]);
    }
#pragma unroll
    for (int u = 0; u < ROWS; ++u) {
      const Elements<VEC> result = take_row<Op, EXCLUSIVE, VEC>(before, now[u]);
      if (u < left) store_columns<VEC>(out + at + u * mine.step, result);
      now[u] = ahead[u];
    }
  }
}

// --- the choice ---

constexpr int64_t kRoom = 4 * 132;     // blocks that an H200 has at the same time, at least
constexpr int64_t kShortest = 1024;    // rows of a part, at least
constexpr int64_t kMostParts = 64;

inline int lanes_of(int64_t cols, int vec) { return cols > 8 ? 32 / vec : 8 / vec; }

inline bool walks(int64_t batch, int64_t rows, int64_t cols) {
  return rows <= 32 || batch * (cols % 4 == 0 ? cols / 4 : cols) >= 132 * 1024;
}
inline Cut cut_of(int64_t batch, int64_t rows, int64_t cols) {
  const int vec = cols % 2 == 0 ? 2 : 1;
  Cut cut = {rows, cols, rows, 1, 1};
  cut.tiles = unsigned(ceil_div(cols, int64_t(lanes_of(cols, vec)) * vec));
  const int64_t blocks = batch * cut.tiles;
  if (blocks >= kRoom / 2 || rows < 2 * kShortest) return cut;
  int64_t parts = ceil_div(kRoom, blocks);
  parts = parts < rows / kShortest ? parts : rows / kShortest;
  parts = parts < kMostParts ? parts : kMostParts;
  cut.part_rows = ceil_div(rows, parts);
  cut.parts = unsigned(ceil_div(rows, cut.part_rows));
  return cut;
}

constexpr int kInvalid = 1;  // cudaErrorInvalidValue

template <typename Op, bool REVERSE, bool EXCLUSIVE, int VEC, int LANES, int ROWS>
int launch_columns(const float* x, float* out, int64_t batch, const Cut& cut, double* totals, cudaStream_t s) {
  const int64_t blocks = batch * cut.parts * cut.tiles;
  if (blocks >= int64_t(1) << 31 || cut.part_rows >= int64_t(1) << 31) return kInvalid;
  const unsigned grid = unsigned(blocks);
  if (cut.parts > 1) total_parts<Op, REVERSE, VEC, LANES, ROWS><<<grid, kThreads, 0, s>>>(x, totals, cut);
  scan_columns<Op, REVERSE, EXCLUSIVE, VEC, LANES, ROWS><<<grid, kThreads, 0, s>>>(x, out, totals, cut);
  return int(cudaGetLastError());
}

}  // namespace axis_scan

inline int64_t axis_scan_bytes(int64_t batch, int64_t rows, int64_t cols) {
  if (batch == 0 || rows == 0 || cols == 0 || axis_scan::walks(batch, rows, cols)) return 0;
  const axis_scan::Cut cut = axis_scan::cut_of(batch, rows, cols);
  return cut.parts > 1 ? batch * int64_t(cut.parts) * cols * int64_t(sizeof(double)) : 0;
}

// Launches the scan over the rows of x[batch, rows, cols].
template <typename Op, bool REVERSE, bool EXCLUSIVE>
int scan_axis(const float* x, float* out, int64_t batch, int64_t rows, int64_t cols, void* workspace, void* stream) {
  using namespace axis_scan;
  const auto s = static_cast<cudaStream_t>(stream);
  if (batch == 0 || rows == 0 || cols == 0) return 0;
  const bool packs = cols % 4 == 0;
  if (walks(batch, rows, cols)) {
    const int64_t columns = batch * cols, blocks = ceil_div(columns, kWalkThreads * (packs ? 4 : 1));
    if (blocks >= int64_t(1) << 31) return kInvalid;
    const unsigned grid = unsigned(blocks);
    if (packs)
      walk_columns<Op, REVERSE, EXCLUSIVE, 4><<<grid, kWalkThreads, 0, s>>>(x, out, columns, rows, cols);
    else
      walk_columns<Op, REVERSE, EXCLUSIVE, 1><<<grid, kWalkThreads, 0, s>>>(x, out, columns, rows, cols);
    return int(cudaGetLastError());
  }
  const Cut cut = cut_of(batch, rows, cols);
  double* const totals = static_cast<double*>(workspace);
  const bool pairs = cols % 2 == 0, wide = cols > 8;
  if (pairs && wide) return launch_columns<Op, REVERSE, EXCLUSIVE, 2, 16, 4>(x, out, batch, cut, totals, s);
  if (pairs) return launch_columns<Op, REVERSE, EXCLUSIVE, 2, 4, 4>(x, out, batch, cut, totals, s);
  if (wide) return launch_columns<Op, REVERSE, EXCLUSIVE, 1, 32, 8>(x, out, batch, cut, totals, s);
  return launch_columns<Op, REVERSE, EXCLUSIVE, 1, 8, 8>(x, out, batch, cut, totals, s);
}

}  // namespace warpsmith
