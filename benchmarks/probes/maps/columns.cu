// Reductions over the middle axis of x[batch, rows, cols], for candidates of sum_reduction (TUNE_KIND=0), mean (1), max (2),
// min (3), argmax (4) and argmin (5). A block reads whole rows, several at a time: a stretch of memory without gaps that
// begins at a multiple of 16 bytes, whatever the number of columns. The same pack of every stretch has the same columns, so
// a thread keeps its packs' results in registers; they are folded into columns at the end.
#include <warpsmith/bulk_copy.cuh>
#include <warpsmith/columns.cuh>

#ifndef TUNE_KIND
#define TUNE_KIND 0
#endif
#ifndef TUNE_WAY
#define TUNE_WAY 1  // 0: loads into registers; 1: a ring of bulk copies
#endif
#ifndef TUNE_THREADS
#define TUNE_THREADS 512
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 8  // of a thread in a stretch
#endif
#ifndef TUNE_PART
#define TUNE_PART 2  // packs of a thread in a stage of the ring
#endif
#ifndef TUNE_STAGES
#define TUNE_STAGES 12
#endif
#ifndef TUNE_SPLIT
#define TUNE_SPLIT 0  // blocks that share a matrix; 0: as many as fill the device
#endif

namespace {
using namespace warpsmith;

// The address of something in shared memory of another block of the cluster.
template <typename T>
__device__ __forceinline__ T* in_block(T* p, unsigned rank) {
  T* there;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
  return there;
}

// What is known of some elements of a column: `take` adds the element of stretch number `step`, `settle` is called now and
// then, `stat` makes it comparable; `rows` are the rows of a stretch, `row` is that of the element.
struct Sum {
  struct Acc {
    float near, far;  // of the last few elements, and of those before
  };
  using Stat = float;
  float* out;
  float scale;
  static __device__ __forceinline__ Acc none(int) { return {0.0f, 0.0f}; }
  static __device__ __forceinline__ void take(Acc& a, float v, int) { a.near += v; }
  static __device__ __forceinline__ void settle(Acc& a) { a.far += a.near, a.near = 0.0f; }
  static __device__ __forceinline__ Stat stat(const Acc& a, int, int) { return a.far + a.near; }
  static __device__ __forceinline__ Stat merge(Stat a, Stat b) { return a + b; }
  __device__ __forceinline__ void store(int64_t i, Stat s) const { out[i] = s * scale; }
};
template <bool MOST>
struct Extreme : ColumnExtreme<MOST> {
  using Acc = float;
  static __device__ __forceinline__ Acc none(int) { return MOST ? -INFINITY : INFINITY; }
  static __device__ __forceinline__ void take(Acc& a, float v, int) { a = ColumnExtreme<MOST>::merge(a, v); }
  static __device__ __forceinline__ void settle(Acc&) {}
  static __device__ __forceinline__ float stat(Acc a, int, int) { return a; }
};
template <bool MOST>
struct Place : ColumnPlace<MOST> {
  using Stat = typename ColumnPlace<MOST>::Stat;
  struct Acc {
    float value;
    int step;
  };
  static __device__ __forceinline__ Acc none(int step) { return {MOST ? -INFINITY : INFINITY, step}; }
  static __device__ __forceinline__ void take(Acc& a, float v, int step) {
    const bool ahead = MOST ? !(v <= a.value) : !(v >= a.value);  // also if one of them is NaN
    if (ahead && a.value == a.value) a = {v, step};
  }
  static __device__ __forceinline__ void settle(Acc&) {}
  static __device__ __forceinline__ Stat stat(const Acc& a, int rows, int row) { return {a.value, a.step * rows + row}; }
};

// How a matrix is cut: stretches of `rows` rows, which are `packs` packs; `all` packs in a matrix.
struct Cut {
  int64_t all;
  int rows, cols, packs, steps, split;
};

template <typename P, int THREADS, int PACKS, int PART, int STAGES, bool RING>
__global__ void __launch_bounds__(THREADS + (RING ? 32 : 0), 1)
    stretches(const float* __restrict__ x, const __grid_constant__ Cut cut, const __grid_constant__ P policy) {
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
  auto count_of = [&](int step) {
    const int64_t left = cut.all - int64_t(step) * cut.packs;
    return int(left < cut.packs ? left : cut.packs);
  };
  if (RING) {
    if (me == 0) {
      for (int k = 0; k < STAGES; ++k) {
        barrier_init(&full[k], 1);
        barrier_init(&empty[k], THREADS / 32);
      }
      barriers_initialised();
    }
    __syncthreads();
  }
  if (RING && me >= THREADS) {
    int slot = 0;
    unsigned parity = 1;
    if (me == THREADS)
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
  } else {
    Acc acc[PACKS][4];
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[p][e] = P::none(rank);
    int slot = 0, turn = 0;
    unsigned parity = 0;
#pragma unroll 1
    for (int step = rank; step < cut.steps; step += cut.split) {
      const int count = count_of(step);
      if constexpr (RING) {
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
          __syncwarp();
          if (me % 32 == 0) barrier_arrive(&empty[slot]);
          if (++slot == STAGES) slot = 0, parity ^= 1;
        }
      } else {
        const float4* at = from + int64_t(step) * cut.packs + me;
        float4 v[PACKS];
        if (count >= THREADS * (PACKS - 1) + me + 1) {
#pragma unroll
          for (int p = 0; p < PACKS; ++p) v[p] = __ldg(at + p * THREADS);
#pragma unroll
          for (int p = 0; p < PACKS; ++p) {
            P::take(acc[p][0], v[p].x, step), P::take(acc[p][1], v[p].y, step);
            P::take(acc[p][2], v[p].z, step), P::take(acc[p][3], v[p].w, step);
          }
        } else {
#pragma unroll
          for (int p = 0; p < PACKS; ++p)
            if (p * THREADS + me < count) {
              const float4 one = __ldg(at + p * THREADS);
              P::take(acc[p][0], one.x, step), P::take(acc[p][1], one.y, step);
              P::take(acc[p][2], one.z, step), P::take(acc[p][3], one.w, step);
            }
        }
      }
      if ((++turn & 31) == 0)
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
#pragma unroll
          for (int e = 0; e < 4; ++e) P::settle(acc[p][e]);
    }
    // All copies of this block have arrived and were read: the ring's memory is free.
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
    Stat* stats = reinterpret_cast<Stat*>(memory);
    const int first = count_of(rank);  // elements after these were never taken
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
      if (p * THREADS + me < cut.packs) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int i = (p * THREADS + me) * 4 + e;
          const int row = i / cut.cols;
          stats[i] = P::stat(p * THREADS + me < first ? acc[p][e] : P::none(cut.steps), cut.rows, row);
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
  Stat* stats = reinterpret_cast<Stat*>(memory);
  if (cut.split > 1) {
    __syncwarp();
    cluster_sync();
  }
  if (me < THREADS)
    for (int i = rank * THREADS + me; i < cut.cols; i += cut.split * THREADS) {
      Stat stat = stats[i];
      for (int other = 1; other < cut.split; ++other)
        stat = P::merge(stat, *in_block(stats + i, unsigned((rank + other) % cut.split)));
      policy.store(matrix * cut.cols + i, stat);
    }
  if (cut.split > 1) {
    __syncwarp();
    cluster_sync();
  }
}

// Like `reduce_columns`, which takes the rest: `old` is the policy for it.
template <typename P, typename Old>
int reduce_stretches(const float* x, int64_t batch, int64_t rows, int64_t cols, const P& policy, const Old& old, void* stream) {
  if (batch == 0 || cols == 0) return 0;
  constexpr int THREADS = TUNE_THREADS, PACKS = TUNE_PACKS, STAGES = TUNE_STAGES;
  constexpr bool RING = TUNE_WAY == 1;
  constexpr int PART = RING ? TUNE_PART : PACKS;
  constexpr int ROOM = THREADS * PACKS;
  const int64_t least = cols % 4 == 0 ? 1 : cols % 2 == 0 ? 2 : 4;  // rows that make whole packs
  Cut cut = {};
  if (rows > 0 && rows < (1 << 30) && rows * cols % 4 == 0 && least * cols / 4 <= ROOM) {
    int64_t together = ROOM / (least * cols / 4) * least;
    const int64_t enough = ceil_div(rows, least) * least;
    if (together > enough) together = enough;
    cut.all = rows * cols / 4, cut.rows = int(together), cut.cols = int(cols), cut.packs = int(together * cols / 4);
    cut.steps = int(ceil_div(cut.all, cut.packs));
    cut.split = TUNE_SPLIT;
    if (TUNE_SPLIT == 0)
      for (cut.split = 1; cut.split < 8 && batch * cut.split < 100;) cut.split *= 2;
    const bool busy = TUNE_SPLIT != 0 || (batch * cut.split >= 100 && cut.steps >= 16 * cut.split);
    if (!busy || cut.steps < cut.split) cut.steps = 0;
  }
  if (cut.steps == 0) return reduce_columns(x, batch, rows, cols, old, stream);
  constexpr int RING_BYTES = RING ? THREADS * PART * STAGES * 16 : 0, STATS = ROOM * 4 * int(sizeof(typename P::Stat));
  constexpr int BYTES = RING_BYTES > STATS ? RING_BYTES : STATS;
  auto kernel = stretches<P, THREADS, PACKS, PART, STAGES, RING>;
  cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (e != cudaSuccess) return int(e);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(batch * cut.split));
  config.blockDim = dim3(unsigned(THREADS + (RING ? 32 : 0)));
  config.dynamicSmemBytes = BYTES;
  config.stream = static_cast<cudaStream_t>(stream);
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
}  // namespace

#if TUNE_KIND < 4
extern "C" int launch(const float* x, float* out, int64_t batch, int64_t rows, int64_t cols, void* workspace, void* stream) {
#if TUNE_KIND < 2
  const float scale = TUNE_KIND == 1 ? 1.0f / float(rows) : 1.0f;
  return reduce_stretches(x, batch, rows, cols, Sum{out, scale}, ColumnSum{out, scale}, stream);
#else
  Extreme<TUNE_KIND == 2> policy;
  policy.out = out;
  return reduce_stretches(x, batch, rows, cols, policy, ColumnExtreme<TUNE_KIND == 2>{out}, stream);
#endif
}
#else
extern "C" int launch(const float* x, int64_t* out, int64_t batch, int64_t rows, int64_t cols, void* workspace, void* stream) {
  Place<TUNE_KIND == 4> policy;
  policy.out = out;
  return reduce_stretches(x, batch, rows, cols, policy, ColumnPlace<TUNE_KIND == 4>{out}, stream);
}
#endif
