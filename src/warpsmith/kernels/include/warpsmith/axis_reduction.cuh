// Reductions over the middle axis of x[batch, rows, cols], or over the last axis (cols of 1), for any sizes: sums, products,
// extremes and their places. `reduce_axis` chooses a kernel by the sizes:
//
//   column_stream of columns.cuh   where there are enough large matrices
//   each_column     a thread has one result, or four neighbouring ones: many results from few rows
//   flat_columns    a block reads a stretch of rows as it lies in memory, in packs of 16 bytes whatever the number of columns:
//                   up to about 1000 columns (4096 if they are a multiple of 4)
//   wide_columns    a block has 64 or 128 neighbouring columns
//   short_runs      one column: 1 to 32 lanes of a warp have a row
//   long_runs       one column: a block has a row, or a part of it
//
// Few matrices are cut into parts: what is found of a part goes to the workspace, and a second kernel joins the parts in a
// fixed order.
//
// A policy is one of columns.cuh, and says in addition
//   P::Part                  what is known of a part of the rows
//   P::part(stat, first)     the same as a Part, for a part that begins with row `first`
//   P::nothing()             of no row
//   P::join(a, b)            of the union of two parts
//   p.finish(i, part)        writes result number i
#pragma once
#include <warpsmith/columns.cuh>

#ifndef TUNE_FLAT_THREADS
#define TUNE_FLAT_THREADS 256
#endif
#ifndef TUNE_FLAT_PACKS
#define TUNE_FLAT_PACKS 4  // of a thread in a stretch
#endif

namespace warpsmith {

// --- policies ---

struct SumOver : ColumnSum {  // times a constant
  using Part = double;
  static __device__ __forceinline__ Part part(Stat s, int64_t) { return double(s); }
  static __device__ __forceinline__ Part nothing() { return 0.0; }
  static __device__ __forceinline__ Part join(Part a, Part b) { return a + b; }
  __device__ __forceinline__ void finish(int64_t i, Part s) const { out[i] = float(s * double(scale)); }
};

struct ProductOver {
  using Acc = float;
  using Stat = float;
  using Part = double;
  float* out;
  static __device__ __forceinline__ Acc begin(int) { return 1.0f; }
  static __device__ __forceinline__ void take(Acc& a, float v, int) { a *= v; }
  static __device__ __forceinline__ void settle(Acc&) {}
  static __device__ __forceinline__ Stat stat(Acc a, int, int) { return a; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return a * b; }
  __device__ __forceinline__ void store(int64_t i, Stat s) const { out[i] = s; }
  static __device__ __forceinline__ Part part(Stat s, int64_t) { return double(s); }
  static __device__ __forceinline__ Part nothing() { return 1.0; }
  static __device__ __forceinline__ Part join(Part a, Part b) { return a * b; }
  __device__ __forceinline__ void finish(int64_t i, Part s) const { out[i] = float(s); }
};

template <bool MOST>
struct ExtremeOver : ColumnExtreme<MOST> {
  using Part = float;
  static __device__ __forceinline__ Part part(float s, int64_t) { return s; }
  static __device__ __forceinline__ Part nothing() { return MOST ? -INFINITY : INFINITY; }
  static __device__ __forceinline__ Part join(Part a, Part b) { return ColumnExtreme<MOST>::merge(a, b); }
  __device__ __forceinline__ void finish(int64_t i, Part s) const { this->out[i] = s; }
};

template <bool MOST>
struct PlaceOver : ColumnPlace<MOST> {
  struct Part {
    int64_t row;
    double value;  // a float would leave bytes of the structure unwritten
  };
  static __device__ __forceinline__ Part part(const typename ColumnPlace<MOST>::Stat& s, int64_t first) {
    return {first + s.row, s.value};
  }
  static __device__ __forceinline__ Part nothing() { return {int64_t(1) << 62, MOST ? -INFINITY : INFINITY}; }
  static __device__ __forceinline__ Part join(const Part& a, const Part& b) {
    const bool ahead = (MOST ? b.value > a.value : b.value < a.value) || (b.value != b.value && a.value == a.value);
    const bool same = b.value == a.value || (b.value != b.value && a.value != a.value);
    return ahead || (same && b.row < a.row) ? b : a;
  }
  __device__ __forceinline__ void finish(int64_t i, const Part& s) const { this->out[i] = s.row; }
};

// --- parts ---

// How matrices are cut: `parts` parts of `part_rows` rows, the last one of what is left.
struct AxisCut {
  int64_t rows, cols, part_rows;
  int parts;
  int packs, height;  // flat_columns: of a stretch, packs and rows
  int tiles;          // wide_columns: of neighbouring columns
};

// Writes what was found of a column in a part, or the result if there is only one part.
template <typename P>
__device__ __forceinline__ void tell_part(const P& policy, const AxisCut& cut, int64_t matrix, int part, int64_t column,
                                          const typename P::Stat& stat, typename P::Part* found) {
  const typename P::Part known = P::part(stat, part * cut.part_rows);
  if (cut.parts == 1)
    policy.finish(matrix * cut.cols + column, known);
  else
    found[(matrix * cut.parts + part) * cut.cols + column] = known;
}

// Joins the parts of each column: COLS neighbouring columns in a block, GROUPS threads for each.
template <typename P, int COLS, int GROUPS>
__global__ void __launch_bounds__(COLS* GROUPS)
    join_parts(const typename P::Part* __restrict__ found, int64_t cols, int parts, int tiles, const __grid_constant__ P policy) {
  using Part = typename P::Part;
  __shared__ Part of_groups[GROUPS][COLS];
  const int lane = int(threadIdx.x) % COLS, group = int(threadIdx.x) / COLS;
  const int64_t matrix = blockIdx.x / unsigned(tiles);
  const int64_t column = int64_t(blockIdx.x % unsigned(tiles)) * COLS + lane;
  const bool exists = column < cols;
  const Part* from = found + matrix * parts * cols + (exists ? column : 0);
  Part part = P::nothing();
  constexpr int UNROLL = 8;
  for (int first = group; first < parts; first += GROUPS * UNROLL) {
    Part more[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      more[u] = first + u * GROUPS < parts ? from[int64_t(first + u * GROUPS) * cols] : P::nothing();
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) part = P::join(part, more[u]);
  }
  of_groups[group][lane] = part;
  __syncthreads();
#pragma unroll
  for (int half = GROUPS / 2; half > 0; half /= 2) {
    if (group < half) of_groups[group][lane] = P::join(of_groups[group][lane], of_groups[group + half][lane]);
    __syncthreads();
  }
  if (group == 0 && exists) policy.finish(matrix * cols + column, of_groups[0][lane]);
}

// --- one thread for each result ---

// A thread has VEC neighbouring columns of a matrix; VEC divides their number.
template <typename P, int VEC, int UNROLL>
__global__ void __launch_bounds__(256)
    each_column(const float* __restrict__ x, int64_t rows, int64_t cols, int64_t results, const __grid_constant__ P policy) {
  const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * VEC;
  if (i >= results) return;
  const int64_t matrix = i / cols;
  const float* from = x + matrix * (rows - 1) * cols + i;  // matrix * rows * cols + column
  typename P::Acc acc[VEC];
#pragma unroll
  for (int e = 0; e < VEC; ++e) acc[e] = P::begin(0);
  for (int row = 0; row < int(rows); row += UNROLL) {
    float v[UNROLL][VEC];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (row + u < int(rows)) {
        if constexpr (VEC == 4) {
          const float4 pack = load_once(from + (row + u) * cols);
          v[u][0] = pack.x, v[u][1] = pack.y, v[u][2] = pack.z, v[u][3] = pack.w;
        } else {
          v[u][0] = __ldg(from + (row + u) * cols);
        }
      }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (row + u < int(rows))
#pragma unroll
        for (int e = 0; e < VEC; ++e) P::take(acc[e], v[u][e], row + u);
#pragma unroll
    for (int e = 0; e < VEC; ++e) P::settle(acc[e]);
  }
#pragma unroll
  for (int e = 0; e < VEC; ++e) policy.finish(i + e, P::part(P::stat(acc[e], 1, 0), 0));
}

// --- narrow matrices ---

// A block has a part of a matrix and reads it in stretches of `cut.packs` packs, which are `cut.height` rows; so a pack has the
// same columns in every stretch. The first stretch begins with the pack that holds the first element of the part: up to three
// elements before belong to others, and so may the elements of the last pack.
template <typename P, int THREADS, int PACKS>
__global__ void __launch_bounds__(THREADS, PACKS <= 4 ? 3 : 1)
    flat_columns(const float* __restrict__ x, const __grid_constant__ AxisCut cut, const __grid_constant__ P policy,
                 typename P::Part* found) {
  __shared__ typename P::Stat stats[THREADS * PACKS * 4];
  const int me = int(threadIdx.x), cols = int(cut.cols);
  const int64_t matrix = blockIdx.x / unsigned(cut.parts);
  const int part = int(blockIdx.x % unsigned(cut.parts));
  const int64_t first_row = part * cut.part_rows, left = cut.rows - first_row;
  const int64_t begin = (matrix * cut.rows + first_row) * cols;
  const int64_t length = (left < cut.part_rows ? left : cut.part_rows) * cols;
  const int shift = int(begin & 3), stretch = cut.packs * 4;  // elements
  const float* from = x + (begin - shift);
  const int64_t end = length + shift;
  const int steps = int(ceil_div(end, stretch));
  typename P::Acc acc[PACKS][4];
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int at = (p * THREADS + me) * 4 + e - shift, first = at < 0 ? 1 : 0;  // the first step that has the element
      acc[p][e] = P::begin(at + int64_t(first) * stretch < length ? first : steps + 1);
    }
  // Whether all elements of a step belong to the part.
  auto whole = [&](int step) { return (step > 0 || shift == 0) && int64_t(step + 1) * stretch <= end; };
  const int64_t readable = int64_t(gridDim.x / unsigned(cut.parts)) * cut.rows * cols - (begin - shift);  // to the tensor's end
  auto load = [&](int step, float4(&v)[PACKS]) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int64_t at = int64_t(step) * stretch + (p * THREADS + me) * 4;
      if (p * THREADS + me >= cut.packs || at >= end) continue;
      if (at + 4 <= readable) {
        v[p] = load_once(from + at);
      } else {
        v[p].x = from[at];
        if (at + 1 < readable) v[p].y = from[at + 1];
        if (at + 2 < readable) v[p].z = from[at + 2];
      }
    }
  };
  float4 ahead[PACKS] = {};
  if (steps > 0) load(0, ahead);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    float4 now[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) now[p] = ahead[p];
    if (step + 1 < steps) load(step + 1, ahead);
    if (whole(step)) {
#pragma unroll
      for (int p = 0; p < PACKS; ++p)
        if (p * THREADS + me < cut.packs) {
          P::take(acc[p][0], now[p].x, step), P::take(acc[p][1], now[p].y, step);
          P::take(acc[p][2], now[p].z, step), P::take(acc[p][3], now[p].w, step);
        }
    } else {
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const float v[4] = {now[p].x, now[p].y, now[p].z, now[p].w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int64_t at = int64_t(step) * stretch + (p * THREADS + me) * 4 + e;
          if (p * THREADS + me < cut.packs && at >= shift && at < end) P::take(acc[p][e], v[e], step);
        }
      }
    }
    if ((step & 31) == 31)
#pragma unroll
      for (int p = 0; p < PACKS; ++p)
#pragma unroll
        for (int e = 0; e < 4; ++e) P::settle(acc[p][e]);
  }
#pragma unroll
  for (int p = 0; p < PACKS; ++p)
    if (p * THREADS + me < cut.packs) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = (p * THREADS + me) * 4 + e - shift;
        stats[at < 0 ? at + stretch : at] = P::stat(acc[p][e], cut.height, at < 0 ? -1 : at / cols);
      }
    }
  __syncthreads();
  for (int width = cut.height; width > 1;) {
    const int half = (width + 1) / 2;
    for (int i = me; i < (width - half) * cols; i += THREADS) stats[i] = P::merge(stats[i], stats[i + half * cols]);
    __syncthreads();
    width = half;
  }
  for (int i = me; i < cols; i += THREADS) tell_part(policy, cut, matrix, part, i, stats[i], found);
}

// --- wide matrices ---

// A block has LANES * VEC neighbouring columns of a part of a matrix, and GROUPS groups of rows. VEC divides the columns.
template <typename P, int VEC, int LANES, int GROUPS, int UNROLL>
__global__ void __launch_bounds__(LANES* GROUPS)
    wide_columns(const float* __restrict__ x, const __grid_constant__ AxisCut cut, const __grid_constant__ P policy,
                 typename P::Part* found) {
  using Stat = typename P::Stat;
  __shared__ Stat of_groups[GROUPS][LANES * VEC];
  const int lane = int(threadIdx.x) % LANES, group = int(threadIdx.x) / LANES;
  const unsigned stack = blockIdx.x / unsigned(cut.tiles);
  const int64_t matrix = stack / unsigned(cut.parts);
  const int part = int(stack % unsigned(cut.parts));
  const int64_t column = (int64_t(blockIdx.x % unsigned(cut.tiles)) * LANES + lane) * VEC;
  const bool exists = column < cut.cols;
  const int64_t first_row = part * cut.part_rows, left = cut.rows - first_row;
  const int count = int(left < cut.part_rows ? left : cut.part_rows);
  const float* from = x + (matrix * cut.rows + first_row + group) * cut.cols + (exists ? column : 0);
  const int steps = group < count ? (count - 1 - group) / GROUPS + 1 : 0;
  typename P::Acc acc[VEC];
#pragma unroll
  for (int e = 0; e < VEC; ++e) acc[e] = P::begin(steps > 0 ? 0 : int(ceil_div(count, GROUPS)));
#pragma unroll 1
  for (int step = 0; step < steps; step += UNROLL) {
    float v[UNROLL][VEC];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (step + u < steps) {
        const float* at = from + int64_t(step + u) * GROUPS * cut.cols;
        if constexpr (VEC == 4) {
          const float4 pack = load_once(at);
          v[u][0] = pack.x, v[u][1] = pack.y, v[u][2] = pack.z, v[u][3] = pack.w;
        } else {
          v[u][0] = __ldg(at);
        }
      }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
      if (step + u < steps)
#pragma unroll
        for (int e = 0; e < VEC; ++e) P::take(acc[e], v[u][e], step + u);
#pragma unroll
    for (int e = 0; e < VEC; ++e) P::settle(acc[e]);
  }
#pragma unroll
  for (int e = 0; e < VEC; ++e) of_groups[group][lane * VEC + e] = P::stat(acc[e], GROUPS, group);
  __syncthreads();
  const int i = int(threadIdx.x);
  const int64_t at = int64_t(blockIdx.x % unsigned(cut.tiles)) * LANES * VEC + i;
  if (i >= LANES * VEC || at >= cut.cols) return;
  Stat stat = of_groups[0][i];
#pragma unroll
  for (int g = 1; g < GROUPS; ++g) stat = P::merge(stat, of_groups[g][i]);
  tell_part(policy, cut, matrix, part, at, stat, found);
}

// --- one column ---

template <typename T>
__device__ __forceinline__ T from_lane_xor(T value, int mask) {
  static_assert(sizeof(T) % 4 == 0, "words");
  union {
    T whole;
    unsigned words[sizeof(T) / 4];
  } cell;
  cell.whole = value;
#pragma unroll
  for (int i = 0; i < int(sizeof(T) / 4); ++i) cell.words[i] = __shfl_xor_sync(kAll, cell.words[i], mask);
  return cell.whole;
}

// What thread `me` of `threads` finds of the elements begin .. begin + length - 1 of a tensor of `total` elements. They are read
// as packs; the first and the last one may have elements that belong to others. length is less than 2^30.
template <typename P>
__device__ __forceinline__ typename P::Stat stat_of_run(const float* x, int64_t total, int64_t begin, int length, int me,
                                                        int threads) {
  constexpr int UNROLL = 4;
  const int shift = int(begin & 3), end = length + shift, packs = (end + 3) / 4;
  const float* from = x + (begin - shift);
  const bool at_end = begin - shift + int64_t(packs) * 4 > total;  // the last pack reaches behind the tensor
  const int readable = packs - (at_end ? 1 : 0), steps = (packs + threads - 1) / threads;
  typename P::Acc acc[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int at = me * 4 + e - shift, first = at < 0 ? 1 : 0;
    acc[e] = P::begin(at + first * threads * 4 < length ? first : steps + 1);
  }
#pragma unroll 1
  for (int step = 0; step < steps; step += UNROLL) {
    if ((step > 0 || shift == 0) && (step + UNROLL) * threads * 4 <= end) {  // whole packs only
      float4 v[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) v[u] = load_once(from + (int64_t(step + u) * threads + me) * 4);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        P::take(acc[0], v[u].x, step + u), P::take(acc[1], v[u].y, step + u);
        P::take(acc[2], v[u].z, step + u), P::take(acc[3], v[u].w, step + u);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) P::settle(acc[e]);
      continue;
    }
    float v[UNROLL][4];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int p = (step + u) * threads + me;
      if (p < readable) {
        const float4 pack = load_once(from + int64_t(p) * 4);
        v[u][0] = pack.x, v[u][1] = pack.y, v[u][2] = pack.z, v[u][3] = pack.w;
      } else if (p < packs) {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[u][e] = p * 4 + e < end ? from[int64_t(p) * 4 + e] : 0.0f;
      }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const int p = (step + u) * threads + me, at = p * 4 - shift;
      if (at >= 0 && at + 4 <= length) {
#pragma unroll
        for (int e = 0; e < 4; ++e) P::take(acc[e], v[u][e], step + u);
      } else if (p < packs) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (at + e >= 0 && at + e < length) P::take(acc[e], v[u][e], step + u);
      }
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) P::settle(acc[e]);
  }
  typename P::Stat stat = P::stat(acc[0], threads * 4, me * 4 - shift);
#pragma unroll
  for (int e = 1; e < 4; ++e) stat = P::merge(stat, P::stat(acc[e], threads * 4, me * 4 + e - shift));
  return stat;
}

constexpr int kRunThreads = 256;
constexpr int64_t kLongestRun = int64_t(1) << 29;  // of a part

// A row belongs to `lanes` neighbouring lanes of a warp; lanes is a power of two.
template <typename P>
__global__ void __launch_bounds__(kRunThreads)
    short_runs(const float* __restrict__ x, int64_t rows, int length, int lanes, const __grid_constant__ P policy) {
  const int lane = int(threadIdx.x) % lanes;
  const int64_t row = int64_t(blockIdx.x) * (kRunThreads / lanes) + int(threadIdx.x) / lanes;
  const int64_t exists = row < rows ? row : rows - 1;  // lanes without a row help with the last one
  typename P::Stat stat = stat_of_run<P>(x, rows * length, exists * length, length, lane, lanes);
  for (int mask = lanes / 2; mask > 0; mask /= 2) stat = P::merge(stat, from_lane_xor(stat, mask));
  if (lane == 0 && row < rows) policy.finish(row, P::part(stat, 0));
}

// A block has a part of a row: cut.rows is the length of a row here.
template <typename P>
__global__ void __launch_bounds__(kRunThreads)
    long_runs(const float* __restrict__ x, int64_t total, const __grid_constant__ AxisCut cut, const __grid_constant__ P policy,
              typename P::Part* found) {
  __shared__ typename P::Stat of_warps[kRunThreads / 32];
  const int64_t row = blockIdx.x / unsigned(cut.parts);
  const int part = int(blockIdx.x % unsigned(cut.parts));
  const int64_t first = part * cut.part_rows, left = cut.rows - first;
  const int length = int(left < cut.part_rows ? left : cut.part_rows);
  typename P::Stat stat = stat_of_run<P>(x, total, row * cut.rows + first, length, int(threadIdx.x), kRunThreads);
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) stat = P::merge(stat, from_lane_xor(stat, mask));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = stat;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int w = 1; w < kRunThreads / 32; ++w) stat = P::merge(stat, of_warps[w]);
  tell_part(policy, cut, row, part, 0, stat, found);
}

// --- the host's side ---

__host__ inline int axis_units() {
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  return units > 0 ? units : 1;
}

// Cuts matrices so that there are about `blocks` blocks, `each` for a matrix that is not cut. A part has about `least` rows or
// more.
__host__ inline void cut_axis(AxisCut& cut, int64_t batch, int64_t each, int64_t blocks, int64_t least) {
  int64_t parts = blocks / (batch * each);
  if (parts > ceil_div(cut.rows, least)) parts = ceil_div(cut.rows, least);
  if (parts < 1) parts = 1;
  cut.part_rows = ceil_div(cut.rows, parts);
  cut.parts = int(ceil_div(cut.rows, cut.part_rows));
}

// `waves` of blocks that take `turns` turns of loads each, and the memory's part.
__host__ inline double axis_cost(double bytes, double rate, int64_t waves, int64_t turns) {
  const double waiting = double(waves) * (2.0 + 0.8 * double(turns)), traffic = bytes / rate;
  return 2.0 + (waiting > traffic ? waiting : traffic);
}

enum class AxisWay { STREAM, EACH, FLAT, WIDE, SHORT, LONG };

// Places of extremes have twice the state: 21 x 1001 x 999 took 52 us in flat_columns and 40 in wide_columns on an H200.
template <typename P>
constexpr bool kFlat = sizeof(typename P::Stat) <= 4;

constexpr int kFlatThreads = TUNE_FLAT_THREADS;
constexpr int kFlatPacks = TUNE_FLAT_PACKS;

// Which kernel takes the sizes, none of which is 0, and how it cuts them. `flat`: whether flat_columns may have columns that
// wide_columns takes, too.
__host__ inline AxisWay axis_way(int64_t batch, int64_t rows, int64_t cols, AxisCut& cut, bool flat) {
  const int64_t units = axis_units();
  cut = {};
  cut.rows = rows, cut.cols = cols, cut.parts = 1, cut.part_rows = rows;
  if (cols > 1 && cut_columns<TUNE_THREADS * TUNE_PACKS>(batch, rows, cols).steps > 0) return AxisWay::STREAM;
  if (cols == 1 && rows <= 512) return AxisWay::SHORT;
  // The way that is estimated to be the fastest, in microseconds on an H200.
  const bool aligned = cols % 4 == 0;
  const double bytes = 4.0 * double(batch) * double(rows) * double(cols);
  AxisWay way = cols == 1 ? AxisWay::SHORT : AxisWay::EACH;
  double best = 1e300;
  if (cols == 1 && rows <= 16384) {
    best = axis_cost(bytes, 3.8e6, ceil_div(batch, 24 * units), ceil_div(rows, 512));
  } else if (cols > 1 && rows < int64_t(1) << 30) {
    const int64_t turns = ceil_div(rows, aligned ? 4 : 8) * ceil_div(batch * cols / (aligned ? 4 : 1), 1280 * units);
    best = axis_cost(bytes, aligned ? 3.8e6 : 3.2e6, 1, turns);
  }
  // Blocks for a matrix that is not cut, blocks that run at the same time, rows of a turn: whole matrices, then parts of them.
  auto consider = [&](AxisWay other, const AxisCut& shape, int64_t each, int64_t together, int64_t turn, double rate) {
    for (const bool parted : {false, true}) {
      AxisCut tried = shape;
      if (parted) cut_axis(tried, batch, each, together, 2 * turn);
      if (parted && tried.parts == 1) break;
      double cost = axis_cost(bytes, rate, ceil_div(batch * each * tried.parts, together), ceil_div(tried.part_rows, turn));
      if (parted) cost += 4.0 + 16.0 * double(batch) * double(tried.parts) * double(cols) / 3.8e6;
      if (cost < best) best = cost, way = other, cut = tried;
    }
  };
  const AxisCut shape = cut;
  if (cols == 1) {
    consider(AxisWay::LONG, shape, 1, 5 * units, 4096, 3.8e6);
    if (way == AxisWay::LONG && cut.part_rows > kLongestRun)
      cut.part_rows = kLongestRun, cut.parts = int(ceil_div(rows, kLongestRun));
    return way;
  }
  const int64_t least = aligned ? 1 : cols % 2 == 0 ? 2 : 4;  // rows that make whole packs
  const int64_t room = kFlatThreads * kFlatPacks, packs = least * cols / 4;
  if (packs <= room && (flat || cols < 32)) {
    const int64_t most = ceil_div(rows, least), fit = room / packs;
    AxisCut flat = shape;
    flat.height = int((fit < most ? fit : most) * least), flat.packs = int(flat.height * cols / 4);
    consider(AxisWay::FLAT, flat, 1, 3 * units, flat.height, 3.8e6);
  }
  if (cols >= 32) {
    AxisCut wide = shape;
    wide.tiles = int(ceil_div(cols, aligned ? 128 : 64));
    consider(AxisWay::WIDE, wide, wide.tiles, 6 * units, 32, aligned ? 3.8e6 : 3.0e6);
  }
  return way;
}

template <typename P>
__host__ int64_t axis_bytes(int64_t batch, int64_t rows, int64_t cols) {
  if (batch <= 0 || rows <= 0 || cols <= 0) return 0;
  AxisCut cut;
  axis_way(batch, rows, cols, cut, kFlat<P>);
  return cut.parts > 1 ? batch * cut.parts * cols * int64_t(sizeof(typename P::Part)) : 0;
}

template <typename P>
int join_cut(const AxisCut& cut, int64_t batch, const P& policy, const typename P::Part* found, cudaStream_t on) {
  if (cut.parts > 1) {
    if (cut.cols < 16) {
      const unsigned blocks = unsigned(batch * cut.cols);
      join_parts<P, 1, 256><<<blocks, 256, 0, on>>>(found, cut.cols, cut.parts, int(cut.cols), policy);
    } else if (cut.parts <= 64) {
      const int64_t tiles = ceil_div(cut.cols, 64);
      join_parts<P, 64, 4><<<unsigned(batch * tiles), 256, 0, on>>>(found, cut.cols, cut.parts, int(tiles), policy);
    } else {
      const int64_t tiles = ceil_div(cut.cols, 32);
      join_parts<P, 32, 32><<<unsigned(batch * tiles), 1024, 0, on>>>(found, cut.cols, cut.parts, int(tiles), policy);
    }
  }
  return int(cudaGetLastError());
}

// One result for each of `batch` rows of `length` elements.
template <typename P>
int reduce_last_axis(const float* x, int64_t batch, int64_t length, const P& policy, void* workspace, void* stream) {
  if (batch == 0) return 0;
  const auto on = static_cast<cudaStream_t>(stream);
  const auto found = static_cast<typename P::Part*>(workspace);
  AxisCut cut = {};
  if (length == 0 || axis_way(batch, length, 1, cut, true) == AxisWay::SHORT) {
    int lanes = 1;
    while (lanes < 32 && lanes * 16 < length + 3) lanes *= 2;
    const unsigned blocks = unsigned(ceil_div(batch, kRunThreads / lanes));
    short_runs<P><<<blocks, kRunThreads, 0, on>>>(x, batch, int(length), lanes, policy);
    return int(cudaGetLastError());
  }
  long_runs<P><<<unsigned(batch * cut.parts), kRunThreads, 0, on>>>(x, batch * length, cut, policy, found);
  return join_cut(cut, batch, policy, found, on);
}

// One result for each column of each matrix.
template <typename P>
int reduce_axis(const float* x, int64_t batch, int64_t rows, int64_t cols, const P& policy, void* workspace, void* stream) {
  if (batch == 0 || cols == 0) return 0;
  if (cols == 1) return reduce_last_axis(x, batch, rows, policy, workspace, stream);
  if (rows == 0) return reduce_columns(x, batch, rows, cols, policy, stream);
  const auto on = static_cast<cudaStream_t>(stream);
  const auto found = static_cast<typename P::Part*>(workspace);
  AxisCut cut;
  const AxisWay way = axis_way(batch, rows, cols, cut, kFlat<P>);
  if (way == AxisWay::STREAM) return reduce_columns(x, batch, rows, cols, policy, stream);
  if (way == AxisWay::EACH) {
    const int64_t results = batch * cols;
    if (cols % 4 == 0)
      each_column<P, 4, 4><<<unsigned(ceil_div(results, 1024)), 256, 0, on>>>(x, rows, cols, results, policy);
    else
      each_column<P, 1, 8><<<unsigned(ceil_div(results, 256)), 256, 0, on>>>(x, rows, cols, results, policy);
    return int(cudaGetLastError());
  }
  if (way == AxisWay::FLAT) {
    const unsigned blocks = unsigned(batch * cut.parts);
    flat_columns<P, kFlatThreads, kFlatPacks><<<blocks, kFlatThreads, 0, on>>>(x, cut, policy, found);
  } else {
    const unsigned blocks = unsigned(batch * cut.parts * cut.tiles);
    if (cols % 4 == 0)
      wide_columns<P, 4, 32, 8, 4><<<blocks, 256, 0, on>>>(x, cut, policy, found);
    else
      wide_columns<P, 1, 64, 4, 8><<<blocks, 256, 0, on>>>(x, cut, policy, found);
  }
  return join_cut(cut, batch, policy, found, on);
}

}  // namespace warpsmith
