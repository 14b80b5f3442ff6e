// Reductions over the middle axis of x[batch, rows, cols]: one result for each column of each matrix.
//
// A block has COLS neighbouring columns and GROUPS groups of rows; each thread has one column and loads UNROLL elements
// before it uses the first. What is computed is said by a policy P:
//   P::Stat                        what is known of a set of elements
//   P::none()                      of the empty set
//   P::merge(a, b)                 of the union of two sets; `a` has the lower rows
//   P::several<N>(values, row, step)   of N elements, whose rows are row, row + step, ...
//   p.store(i, stat)               writes result number i
#pragma once
#include <warpsmith/packs.cuh>

#ifndef TUNE_COLS
#define TUNE_COLS 128
#endif
#ifndef TUNE_GROUPS
#define TUNE_GROUPS 8
#endif
#ifndef TUNE_UNROLL
#define TUNE_UNROLL 4
#endif

namespace warpsmith {

template <typename P, int COLS, int GROUPS, int UNROLL>
__global__ void __launch_bounds__(COLS* GROUPS)
    column_reduction(const float* __restrict__ x, int64_t rows, int64_t cols, int tiles, const __grid_constant__ P policy) {
  using Stat = typename P::Stat;
  __shared__ Stat of_groups[GROUPS][COLS];
  const int lane = int(threadIdx.x) % COLS, group = int(threadIdx.x) / COLS;
  const int64_t batch = blockIdx.x / unsigned(tiles);
  const int64_t column = int64_t(blockIdx.x % unsigned(tiles)) * COLS + lane;
  const bool exists = column < cols;
  const float* from = x + batch * rows * cols + (exists ? column : 0);
  Stat stat = P::none();
  int64_t row = group;
  for (; row + (UNROLL - 1) * GROUPS < rows; row += UNROLL * GROUPS) {
    float v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) v[u] = __ldg(from + (row + u * GROUPS) * cols);
    stat = P::merge(stat, P::template several<UNROLL>(v, row, GROUPS));
  }
  for (; row < rows; row += GROUPS) {
    const float v[1] = {__ldg(from + row * cols)};
    stat = P::merge(stat, P::template several<1>(v, row, GROUPS));
  }
  of_groups[group][lane] = stat;
  __syncthreads();
  if (group != 0 || !exists) return;
#pragma unroll
  for (int g = 1; g < GROUPS; ++g) stat = P::merge(stat, of_groups[g][lane]);
  policy.store(batch * cols + column, stat);
}

template <typename P>
int reduce_columns(const float* x, int64_t batch, int64_t rows, int64_t cols, const P& policy, void* stream) {
  if (batch == 0 || cols == 0) return 0;
  const auto on = static_cast<cudaStream_t>(stream);
  if (batch * ceil_div(cols, TUNE_COLS) >= 528) {
    const int64_t tiles = ceil_div(cols, TUNE_COLS);
    column_reduction<P, TUNE_COLS, TUNE_GROUPS, TUNE_UNROLL>
        <<<unsigned(batch * tiles), TUNE_COLS * TUNE_GROUPS, 0, on>>>(x, rows, cols, int(tiles), policy);
  } else {  // few columns: more threads for each
    const int64_t tiles = ceil_div(cols, 32);
    column_reduction<P, 32, 32, 8><<<unsigned(batch * tiles), 1024, 0, on>>>(x, rows, cols, int(tiles), policy);
  }
  return int(cudaGetLastError());
}

struct ColumnSum {  // times a constant
  using Stat = float;
  float* out;
  float scale;
  static __device__ __forceinline__ Stat none() { return 0.0f; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return a + b; }
  template <int N>
  static __device__ __forceinline__ Stat several(const float (&v)[N], int64_t, int) {
    float sums[N];
#pragma unroll
    for (int i = 0; i < N; ++i) sums[i] = v[i];
#pragma unroll
    for (int width = N / 2; width > 0; width /= 2)
#pragma unroll
      for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
    return sums[0];
  }
  __device__ __forceinline__ void store(int64_t i, Stat s) const { out[i] = s * scale; }
};

template <bool MOST>
struct ColumnExtreme {  // the largest or the smallest element; NaN if there is one
  using Stat = float;
  float* out;
  static __device__ __forceinline__ Stat none() { return MOST ? -INFINITY : INFINITY; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return MOST ? max_nan(a, b) : min_nan(a, b); }
  template <int N>
  static __device__ __forceinline__ Stat several(const float (&v)[N], int64_t, int) {
    float best = v[0];
#pragma unroll
    for (int i = 1; i < N; ++i) best = merge(best, v[i]);
    return best;
  }
  __device__ __forceinline__ void store(int64_t i, Stat s) const { out[i] = s; }
};

template <bool MOST>
struct ColumnPlace {  // the lowest row of the largest or the smallest element; NaN comes before all
  struct Stat {
    float value;
    int row;
  };
  int64_t* out;
  static __device__ __forceinline__ Stat none() { return {MOST ? -INFINITY : INFINITY, 0x7fffffff}; }
  static __device__ __forceinline__ Stat merge(const Stat& a, const Stat& b) {
    const bool ahead = (MOST ? b.value > a.value : b.value < a.value) || (b.value != b.value && a.value == a.value);
    const bool same = b.value == a.value || (b.value != b.value && a.value != a.value);
    return ahead || (same && b.row < a.row) ? b : a;
  }
  template <int N>
  static __device__ __forceinline__ Stat several(const float (&v)[N], int64_t row, int step) {
    Stat best = {v[0], int(row)};
#pragma unroll
    for (int i = 1; i < N; ++i) {
      const bool ahead = MOST ? v[i] > best.value : v[i] < best.value;
      if (ahead || (v[i] != v[i] && best.value == best.value)) best = {v[i], int(row) + i * step};
    }
    return best;
  }
  __device__ __forceinline__ void store(int64_t i, const Stat& s) const { out[i] = s.row; }
};

}  // namespace warpsmith
