// Reductions over the middle axis of x[batch, rows, cols]: one result for each column of each matrix.
//
// Two kernels. `column_stream` reads a matrix in stretches of several whole rows, without gaps, which begin at a multiple of
// 16 bytes whatever the number of columns; a pack has the same columns in every stretch, so a thread keeps what it knows
// of its packs in registers until the end. `column_groups` takes what does not fit that: a thread has one column.
//
// What is computed is said by a policy P. The elements of a column that a thread takes have the numbers 0, 1, 2, ... ("step"):
//   P::Acc                         what is known of the elements that a thread has taken
//   P::begin(step)                 of none; the first one will have the number `step`
//   P::take(acc, value, step)      one element more
//   P::settle(acc)                 called after some elements: sums of sums are more exact than long sums
//   P::stat(acc, stride, row)      the same as a Stat: number `step` lies in row step * stride + row
//   P::merge(a, b)                 of the union of two sets
//   p.store(i, stat)               writes result number i
#pragma once
#include <cooperative_groups.h>
#include <warpsmith/bulk_copy.cuh>
#include <warpsmith/packs.cuh>

#ifndef TUNE_THREADS
#define TUNE_THREADS 512
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 8  // of a thread in a stretch
#endif
#ifndef TUNE_PART
#define TUNE_PART 2  // of a thread in a stage of the ring
#endif
#ifndef TUNE_STAGES
#define TUNE_STAGES 12
#endif

namespace warpsmith {

// A block has COLS neighbouring columns and GROUPS groups of rows; each thread has one column and loads UNROLL elements
// before it uses the first.
template <typename P, int COLS, int GROUPS, int UNROLL>
__global__ void __launch_bounds__(COLS* GROUPS)
    column_groups(const float* __restrict__ x, int64_t rows, int64_t cols, int tiles, const __grid_constant__ P policy) {
  using Stat = typename P::Stat;
  __shared__ Stat of_groups[GROUPS][COLS];
  const int lane = int(threadIdx.x) % COLS, group = int(threadIdx.x) / COLS;
  const int64_t batch = blockIdx.x / unsigned(tiles);
  const int64_t column = int64_t(blockIdx.x % unsigned(tiles)) * COLS + lane;
  const bool exists = column < cols;
  const float* from = x + batch * rows * cols + (exists ? column : 0);
  const int steps = group < rows ? int((rows - 1 - group) / GROUPS) + 1 : 0;
  auto load = [&](int step) { return __ldg(from + (int64_t(step) * GROUPS + group) * cols); };
  typename P::Acc acc = P::begin(steps > 0 ? 0 : int(ceil_div(rows, GROUPS)));  // without elements: after the last row
  int step = 0;
  for (; step + UNROLL <= steps; step += UNROLL) {
    float v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) v[u] = load(step + u);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) P::take(acc, v[u], step + u);
    P::settle(acc);
  }
  for (; step < steps; ++step) P::take(acc, load(step), step);
  Stat stat = P::stat(acc, GROUPS, group);
  of_groups[group][lane] = stat;
  __syncthreads();
  if (group != 0 || !exists) return;
#pragma unroll
  for (int g = 1; g < GROUPS; ++g) stat = P::merge(stat, of_groups[g][lane]);
  policy.store(batch * cols + column, stat);
}

// How a matrix of `all` packs is cut: `steps` stretches of `rows` rows, which are `packs` packs. The `split` blocks of a
// cluster take them in turn.
struct ColumnCut {
  int64_t all;
  int rows, cols, packs, steps, split;
};

// THREADS threads take the packs, one warp more fetches them into a ring of STAGES stages of PART packs for each thread.
template <typename P, int THREADS, int PACKS, int PART, int STAGES>
__global__ void __launch_bounds__(THREADS + 32, 1)
    column_stream(const float* __restrict__ x, const __grid_constant__ ColumnCut cut, const __grid_constant__ P policy) {
  using Acc = typename P::Acc;
  using Stat = typename P::Stat;
  static_assert(PACKS % PART == 0, "parts fill a stretch");
  constexpr int PARTS = PACKS / PART, ROOM = THREADS * PART;
  extern __shared__ __align__(128) float4 memory[];
  __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
  const int me = int(threadIdx.x);
  const int rank = int(blockIdx.x % unsigned(cut.split));
  const int64_t matrix = blockIdx.x / unsigned(cut.split);
  const float4* from = reinterpret_cast<const float4*>(x) + matrix * cut.all;
  auto count_of = [&](int step) {  // packs: the last stretch may have fewer rows
    const int64_t left = cut.all - int64_t(step) * cut.packs;
    return int(left < cut.packs ? left : cut.packs);
  };
  if (me == 0) {
    for (int k = 0; k < STAGES; ++k) {
      barrier_init(&full[k], 1);
      barrier_init(&empty[k], THREADS);
    }
    barriers_initialised();
  }
  __syncthreads();
  Stat* stats = reinterpret_cast<Stat*>(memory);
  if (me == THREADS) {
    int slot = 0;
    unsigned parity = 1;
    for (int step = rank; step < cut.steps; step += cut.split) {
      const int count = count_of(step);
      for (int part = 0; part < PARTS; ++part) {
        const int begin = part * ROOM, left = count - begin;
        const int some = left < 0 ? 0 : left < ROOM ? left : ROOM;
        barrier_wait(&empty[slot], parity);
        bulk_fetch(memory + slot * ROOM, from + int64_t(step) * cut.packs + begin, unsigned(some) * 16, &full[slot]);
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
    }
  } else if (me < THREADS) {
    Acc acc[PACKS][4];
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[p][e] = P::begin(rank);
    int slot = 0, turn = 0;
    unsigned parity = 0;
#pragma unroll 1
    for (int step = rank; step < cut.steps; step += cut.split) {
      const int count = count_of(step);
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        barrier_wait(&full[slot], parity);
        const float4* held = memory + slot * ROOM;
#pragma unroll
        for (int k = 0; k < PART; ++k) {
          const int p = part * PART + k;
          if (p * THREADS + me < count) {
            const float4 v = held[k * THREADS + me];
            P::take(acc[p][0], v.x, step), P::take(acc[p][1], v.y, step);
            P::take(acc[p][2], v.z, step), P::take(acc[p][3], v.w, step);
          }
        }
        barrier_arrive(&empty[slot]);  // every thread for what it has read itself: racecheck follows no other way
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
      if ((++turn & 31) == 0)
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
          for (int e = 0; e < 4; ++e) P::settle(acc[p][e]);
    }
    // All copies of this block have arrived and were read: the memory of the ring is free for the rows of results.
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    const int first = count_of(rank);  // of the packs after these, nothing was taken
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
      if (p * THREADS + me < cut.packs) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = (p * THREADS + me) * 4 + e;
          stats[i] = P::stat(p * THREADS + me < first ? acc[p][e] : P::begin(cut.steps), cut.rows, i / cut.cols);
        }
      }
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    for (int width = cut.rows; width > 1;) {
      const int half = (width + 1) / 2;
      for (int i = me; i < (width - half) * cut.cols; i += THREADS) stats[i] = P::merge(stats[i], stats[i + half * cut.cols]);
      asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
      width = half;
    }
  }
  if (cut.split > 1) {
    __syncwarp();
    cluster_sync();
  }
  if (me < THREADS)
    for (int i = rank * THREADS + me; i < cut.cols; i += cut.split * THREADS) {
      Stat stat = stats[i];
      for (int other = 1; other < cut.split; ++other)
        stat = P::merge(stat, *cooperative_groups::this_cluster().map_shared_rank(stats + i, (rank + other) % cut.split));
      policy.store(matrix * cut.cols + i, stat);
    }
  if (cut.split > 1) {
    __syncwarp();
    cluster_sync();  // no block ends while another one may still read its shared memory
  }
}

// How `column_stream` cuts the matrices; no steps where it is not for them. Its blocks take all of a multiprocessor's shared
// memory: there must be enough of them for most multiprocessors, also in the last wave. Fewer matrices are split.
template <int ROOM>
ColumnCut cut_columns(int64_t batch, int64_t rows, int64_t cols) {
  ColumnCut cut = {};
  const int64_t least = cols % 4 == 0 ? 1 : cols % 2 == 0 ? 2 : 4;  // rows that make whole packs
  if (rows <= 0 || rows >= 1 << 30 || rows * cols % 4 != 0 || least * cols / 4 > ROOM) return cut;
  const int64_t enough = ceil_div(rows, least) * least, fit = ROOM / (least * cols / 4) * least;
  cut.all = rows * cols / 4, cut.cols = int(cols);
  cut.rows = int(fit < enough ? fit : enough), cut.packs = int(cut.rows * cols / 4);
  const int64_t steps = ceil_div(cut.all, cut.packs);
  int device = 0, units = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
  for (cut.split = 1; cut.split <= 8; cut.split *= 2) {
    const int64_t blocks = batch * cut.split;
    if (4 * blocks >= 3 * units * ceil_div(blocks, units)) break;
  }
  if (cut.split <= 8 && steps >= 16 * cut.split) cut.steps = int(steps);  // shorter ones end before the ring has filled twice
  return cut;
}

template <typename P>
int reduce_columns(const float* x, int64_t batch, int64_t rows, int64_t cols, const P& policy, void* stream) {
  if (batch == 0 || cols == 0) return 0;
  const auto on = static_cast<cudaStream_t>(stream);
  constexpr int THREADS = TUNE_THREADS, PACKS = TUNE_PACKS, PART = TUNE_PART, STAGES = TUNE_STAGES;
  const ColumnCut cut = cut_columns<THREADS * PACKS>(batch, rows, cols);
  if (cut.steps > 0) {
    constexpr int RING = THREADS * PART * STAGES * 16, STATS = THREADS * PACKS * 4 * int(sizeof(typename P::Stat));
    constexpr int BYTES = RING > STATS ? RING : STATS;
    auto kernel = column_stream<P, THREADS, PACKS, PART, STAGES>;
    cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
    if (e != cudaSuccess) return int(e);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(unsigned(batch * cut.split));
    config.blockDim = dim3(THREADS + 32);
    config.dynamicSmemBytes = BYTES;
    config.stream = on;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = unsigned(cut.split);
    attribute[0].val.clusterDim.y = 1;
    attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    e = cudaLaunchKernelEx(&config, kernel, x, cut, policy);
    return int(e != cudaSuccess ? e : cudaGetLastError());
  }
  if (batch * ceil_div(cols, 128) >= 528) {
    const int64_t tiles = ceil_div(cols, 128);
    column_groups<P, 128, 8, 4><<<unsigned(batch * tiles), 1024, 0, on>>>(x, rows, cols, int(tiles), policy);
  } else {  // few columns: more threads for each
    const int64_t tiles = ceil_div(cols, 32);
    column_groups<P, 32, 32, 8><<<unsigned(batch * tiles), 1024, 0, on>>>(x, rows, cols, int(tiles), policy);
  }
  return int(cudaGetLastError());
}

struct ColumnSum {  // times a constant
  struct Acc {
    float near, far;  // of the last few elements, and of those before
  };
  using Stat = float;
  float* out;
  float scale;
  static __device__ __forceinline__ Acc begin(int) { return {0.0f, 0.0f}; }
  static __device__ __forceinline__ void take(Acc& a, float v, int) { a.near += v; }
  static __device__ __forceinline__ void settle(Acc& a) { a.far += a.near, a.near = 0.0f; }
  static __device__ __forceinline__ Stat stat(const Acc& a, int, int) { return a.far + a.near; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return a + b; }
  __device__ __forceinline__ void store(int64_t i, Stat s) const { out[i] = s * scale; }
};

template <bool MOST>
struct ColumnExtreme {  // the largest or the smallest element; NaN if there is one
  using Acc = float;
  using Stat = float;
  float* out;
  static __device__ __forceinline__ Acc begin(int) { return MOST ? -INFINITY : INFINITY; }
  static __device__ __forceinline__ void take(Acc& a, float v, int) { a = merge(a, v); }
  static __device__ __forceinline__ void settle(Acc&) {}
  static __device__ __forceinline__ Stat stat(Acc a, int, int) { return a; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return MOST ? max_nan(a, b) : min_nan(a, b); }
  __device__ __forceinline__ void store(int64_t i, Stat s) const { out[i] = s; }
};

template <bool MOST>
struct ColumnPlace {  // the lowest row of the largest or the smallest element; NaN comes before all
  struct Acc {
    float value;
    int step;
  };
  struct Stat {
    float value;
    int row;
  };
  int64_t* out;
  static __device__ __forceinline__ Acc begin(int step) { return {MOST ? -INFINITY : INFINITY, step}; }
  static __device__ __forceinline__ void take(Acc& a, float v, int step) {
    const bool ahead = MOST ? !(v <= a.value) : !(v >= a.value);  // also if one of them is NaN
    if (ahead && a.value == a.value) a = {v, step};
  }
  static __device__ __forceinline__ void settle(Acc&) {}
  static __device__ __forceinline__ Stat stat(const Acc& a, int stride, int row) { return {a.value, a.step * stride + row}; }
  static __device__ __forceinline__ Stat merge(const Stat& a, const Stat& b) {
    const bool ahead = (MOST ? b.value > a.value : b.value < a.value) || (b.value != b.value && a.value == a.value);
    const bool same = b.value == a.value || (b.value != b.value && a.value != a.value);
    return ahead || (same && b.row < a.row) ? b : a;
  }
  __device__ __forceinline__ void store(int64_t i, const Stat& s) const { out[i] = s.row; }
};

}  // namespace warpsmith
