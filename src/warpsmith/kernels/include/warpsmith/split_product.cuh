// Matrix products with float32 accuracy on the fp16 tensor cores of sm_90a.
//
// Every float32 factor x is written as x = s * (hi + lo), where s is a power of two shared by a stretch of one row,
// hi is x / s rounded to fp16 and lo is the rest rounded to fp16. A product of two such factors is
//     hi * hi + hi * lo + lo * hi
// (lo * lo is below the rounding of float32), so a float32 product costs three fp16 products.
//
//   1. prepare_along / prepare_across turn a matrix into two fp16 planes in the workspace. The planes are cut into
//      blocks of ROWS rows and BLOCK_K terms, each block one contiguous piece of memory in exactly the layout that the
//      matrix instructions read from shared memory. Rows and terms beyond the matrix are zero. Each stretch of CHUNK
//      terms of a row has its own scale: the power of two that brings its largest value to [2^14, 2^15).
//   2. product_kernel: one producer thread copies blocks to shared memory (cp.async.bulk, a ring of STAGES stages),
//      two warpgroups of consumers multiply. Tensor cores cut off bits when they add to an accumulator, so after each
//      chunk the accumulator is multiplied by the two scales and added to a float32 sum in ordinary registers.
//   3. The epilogue is a functor that gets pairs of neighbouring elements of the result.
//
// A stretch that holds NaN, infinity, or a largest value outside [2^-59, 2^64) gets the scale NaN. Every element of
// the result that comes out as NaN is computed again from the float32 factors by one thread, with ordinary arithmetic.
// So NaN, infinity and extreme values give what they give in a plain float32 loop, at the cost of time.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include <warpsmith/wgmma.cuh>

namespace warpsmith {
namespace split {

// ---------------------------------------------------------------------------------------------------------------------
// Sizes and layout
// ---------------------------------------------------------------------------------------------------------------------

template <int TILE_N_, int CHUNK_ = 128, int BLOCK_K_ = 32, int STAGES_ = 5, int CLUSTER_ = 1, bool SMALL_FIRST_ = false,
          bool STAGED_ = false, int PLANES_ = 2>
struct Shape {
  static constexpr int TILE_M = 128;              // rows of the result per thread block: 64 per warpgroup of consumers
  static constexpr int TILE_N = TILE_N_;          // columns of the result per thread block
  static constexpr int CHUNK = CHUNK_;            // terms that are added up on the tensor cores
  static constexpr int BLOCK_K = BLOCK_K_;        // terms per stage
  static constexpr int STAGES = STAGES_;
  static constexpr int CLUSTER = CLUSTER_;        // thread blocks (below each other) that share the blocks of B
  static constexpr bool SMALL_FIRST = SMALL_FIRST_;  // within a chunk the products with lo come before hi * hi
  static constexpr bool STAGED = STAGED_;  // results leave through shared memory, in whole rows
  static constexpr int PLANES = PLANES_;   // 2: hi and lo, float32 accuracy; 1: hi alone, accuracy of TF32
  static constexpr int CHUNK_BLOCKS = CHUNK / BLOCK_K;
  static constexpr int A_BYTES = TILE_M * BLOCK_K * 2 * PLANES;
  static constexpr int B_BYTES = TILE_N * BLOCK_K * 2 * PLANES;
  static constexpr int SCALE_BYTES = (TILE_M + TILE_N) * 4;
  static constexpr int STAGE_BYTES = A_BYTES + B_BYTES + SCALE_BYTES;
  static constexpr int RESULT_STEP = TILE_N * 4 + 32;  // bytes between rows: no two lanes of a store share a bank
  static constexpr int RESULT_BYTES = STAGED ? TILE_M * RESULT_STEP : 0;
  static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + RESULT_BYTES + 2 * STAGES * 8 + 128;
  static constexpr int THREADS = 384;
  static_assert(CHUNK % BLOCK_K == 0 && BLOCK_K % 16 == 0, "chunks are whole blocks, blocks whole instructions");
  static_assert(!SMALL_FIRST || CHUNK_BLOCKS <= STAGES, "a whole chunk has to fit into the stages");
  static_assert(SHARED_BYTES <= 232448, "too much shared memory");
};

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Where the planes and the scales of one matrix (or of a stack of matrices) lie in the workspace.
struct Planes {
  char* blocks;    // [stack][row tile][block of terms][hi, lo][group of 8 terms][row][8 terms]
  float* scales;   // [stack][chunk][row]
  int rows;        // of the matrix, without padding
  int terms;
  int tiles;       // row tiles
  int term_blocks;
  int chunks;
};

struct PlaneBytes {
  int64_t blocks, scales;
  int64_t total() const { return blocks + scales; }
};

inline PlaneBytes plane_bytes(int64_t stack, int64_t rows, int64_t terms, int tile, int block_k, int chunk,
                              int planes = 2) {
  const int64_t tiles = (rows + tile - 1) / tile, blocks = (terms + block_k - 1) / block_k;
  return {round_up(stack * tiles * blocks * tile * block_k * 2 * planes, 256),
          round_up(stack * ((terms + chunk - 1) / chunk) * tiles * tile * 4, 256)};
}

inline Planes planes_at(char* memory, int64_t stack, int64_t rows, int64_t terms, int tile, int block_k, int chunk,
                        int planes = 2) {
  const PlaneBytes bytes = plane_bytes(stack, rows, terms, tile, block_k, chunk, planes);
  return {memory,
          reinterpret_cast<float*>(memory + bytes.blocks),
          int(rows),
          int(terms),
          int((rows + tile - 1) / tile),
          int((terms + block_k - 1) / block_k),
          int((terms + chunk - 1) / chunk)};
}

// ---------------------------------------------------------------------------------------------------------------------
// Preparing a factor
// ---------------------------------------------------------------------------------------------------------------------

// A stack of matrices in memory: "row" is the outer index (m of A, n of B), "term" the index that is summed over.
struct Matrix {
  const float* data;
  int64_t row_step, term_step, stack_step;
  __device__ __forceinline__ const float* row_at(int64_t stack, int64_t row) const {
    return data + stack * stack_step + row * row_step;
  }
  __device__ __forceinline__ float at(int64_t stack, int64_t row, int64_t term) const {
    return __ldg(row_at(stack, row) + term * term_step);
  }
};

// The rows of two matrices in turn: the result has an element of each beside the other.
struct Interleaved {
  const float *even, *odd;
  int64_t row_step;
  static constexpr int64_t term_step = 1;
  __device__ __forceinline__ const float* row_at(int64_t, int64_t row) const {
    return (row % 2 ? odd : even) + row / 2 * row_step;
  }
  __device__ __forceinline__ float at(int64_t stack, int64_t row, int64_t term) const {
    return __ldg(row_at(stack, row) + term);
  }
};

// Whether four neighbouring terms of a row can be loaded at once.
inline bool in_vectors(const Matrix& m) {
  return m.term_step == 1 && m.row_step % 4 == 0 && m.stack_step % 4 == 0 && reinterpret_cast<uintptr_t>(m.data) % 16 == 0;
}
inline bool in_vectors(const Interleaved& m) {
  return m.row_step % 4 == 0 && (reinterpret_cast<uintptr_t>(m.even) | reinterpret_cast<uintptr_t>(m.odd)) % 16 == 0;
}

// Which chunks of a triangular matrix any tile of the product reads.
enum class Needed { ALL, FROM_DIAGONAL, TO_DIAGONAL };

template <int TILE, int CHUNK>
__device__ __forceinline__ bool needs(Needed needed, int row, int chunk) {
  if (needed == Needed::FROM_DIAGONAL) return chunk >= row / TILE * TILE / CHUNK;
  if (needed == Needed::TO_DIAGONAL) return chunk < ((row / TILE + 1) * TILE + CHUNK - 1) / CHUNK;
  return true;
}

// The scale of a stretch from the bits of its largest absolute value: {factor for the values, factor for the result}.
__device__ __forceinline__ float2 scale_of(unsigned largest) {
  const int exponent = int(largest >> 23) - 127;
  if (largest == 0) return make_float2(0.f, 1.f);
  if (exponent < -59 || exponent > 63) return make_float2(0.f, __int_as_float(0x7fffffff));
  return make_float2(__int_as_float((127 + 14 - exponent) << 23), __int_as_float((127 - 14 + exponent) << 23));
}

// Eight neighbouring terms of a row as 16 bytes of each plane.
__device__ __forceinline__ void split8(const float (&x)[8], float factor, uint4& hi, uint4& lo) {
  unsigned h[4], l[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // Infinity and NaN go through as they are: the scale of the stretch is NaN, and so are all results that use it.
    const float u = x[2 * i] * factor, v = x[2 * i + 1] * factor;
    const __half2 high = __floats2half2_rn(u, v);
    const float2 back = __half22float2(high);
    const __half2 low = __floats2half2_rn(u - back.x, v - back.y);
    h[i] = *reinterpret_cast<const unsigned*>(&high);
    l[i] = *reinterpret_cast<const unsigned*>(&low);
  }
  hi = make_uint4(h[0], h[1], h[2], h[3]);
  lo = make_uint4(l[0], l[1], l[2], l[3]);
}

__device__ __forceinline__ unsigned largest8(const float (&x)[8], unsigned largest) {
#pragma unroll
  for (int i = 0; i < 8; ++i) largest = max(largest, __float_as_uint(x[i]) & 0x7fffffffu);
  return largest;
}

template <int TILE, int BLOCK_K, int PLANES>
__device__ __forceinline__ void store_split(const Planes& planes, int64_t stack, int row, int group, uint4 hi, uint4 lo) {
  constexpr int GROUPS = BLOCK_K / 8;
  const int block = group / GROUPS;
  if (block >= planes.term_blocks) return;
  char* at = planes.blocks + ((stack * planes.tiles + row / TILE) * planes.term_blocks + block) * (TILE * BLOCK_K * 2 * PLANES) +
             (group % GROUPS) * (TILE * 16) + (row % TILE) * 16;
  *reinterpret_cast<uint4*>(at) = hi;
  if (PLANES == 2) *reinterpret_cast<uint4*>(at + TILE * BLOCK_K * 2) = lo;
}

// For matrices whose terms are neighbours in memory (term_step = 1). A warp takes 8 rows and one chunk; 4 lanes share a
// row, so that a warp reads 128 bytes of each row and writes 128 bytes of each group of 8 terms at a time.
// VECTOR: rows begin at multiples of 16 bytes. `source` offers at(stack, row, term) and load4 for the vector case.
template <int TILE, int BLOCK_K, int CHUNK, bool VECTOR, int PLANES, class Source>
__global__ void __launch_bounds__(256) prepare_along(Source source, Planes planes, Needed needed) {
  static_assert(CHUNK % 32 == 0, "");
  constexpr int STEPS = CHUNK / 32;
  const int lane = threadIdx.x % 32, quarter = lane % 4;
  const int64_t stack = blockIdx.z;
  const int64_t warps = int64_t(planes.tiles) * (TILE / 8) * planes.chunks;
  for (int64_t warp = int64_t(blockIdx.x) * 8 + threadIdx.x / 32; warp < warps; warp += int64_t(gridDim.x) * 8) {
    const int chunk = int(warp % planes.chunks), group = int(warp / planes.chunks);
    if (!needs<TILE, CHUNK>(needed, group * 8, chunk)) continue;
    const int row = group * 8 + lane / 4;
    float x[STEPS][8];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const int term = chunk * CHUNK + s * 32 + quarter * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) x[s][i] = 0.f;
      if (row < planes.rows) {
        if (VECTOR && term + 8 <= planes.terms) {
          const float4* from =
              reinterpret_cast<const float4*>(source.row_at(stack, row) + term);
          const float4 a = __ldg(from), b = __ldg(from + 1);
          x[s][0] = a.x, x[s][1] = a.y, x[s][2] = a.z, x[s][3] = a.w;
          x[s][4] = b.x, x[s][5] = b.y, x[s][6] = b.z, x[s][7] = b.w;
        } else {
#pragma unroll
          for (int i = 0; i < 8; ++i)
            if (term + i < planes.terms) x[s][i] = source.at(stack, row, term + i);
        }
      }
    }
    unsigned largest = 0;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) largest = largest8(x[s], largest);
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float2 scale = scale_of(largest);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      uint4 hi, lo;
      split8(x[s], scale.x, hi, lo);
      store_split<TILE, BLOCK_K, PLANES>(planes, stack, row, chunk * (CHUNK / 8) + s * 4 + quarter, hi, lo);
    }
    if (quarter == 0)
      planes.scales[(stack * planes.chunks + chunk) * int64_t(planes.tiles) * TILE + row] = scale.y;
  }
}

// For matrices whose rows are neighbours in memory (row_step = 1), i.e. stored transposed. A thread block takes 32 rows
// and one chunk; a lane owns one row, a warp eight terms at a time, so that reads and writes are contiguous.
template <int TILE, int BLOCK_K, int CHUNK, int PLANES, class Source>
__global__ void __launch_bounds__(256) prepare_across(Source source, Planes planes, Needed needed) {
  static_assert(CHUNK % 64 == 0 && TILE % 16 == 0, "");
  constexpr int STEPS = CHUNK / 64;
  __shared__ unsigned found[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row = blockIdx.x * 32 + lane;
  const int64_t stack = blockIdx.z;
  const bool inside = row < planes.rows, padded = row < planes.tiles * TILE;
  for (int chunk = blockIdx.y; chunk < planes.chunks; chunk += gridDim.y) {
    if (!needs<TILE, CHUNK>(needed, blockIdx.x * 32, chunk) && !needs<TILE, CHUNK>(needed, blockIdx.x * 32 + 31, chunk))
      continue;
    float x[STEPS][8];
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const int term = chunk * CHUNK + s * 64 + warp * 8;
#pragma unroll
      for (int i = 0; i < 8; ++i) x[s][i] = inside && term + i < planes.terms ? source.at(stack, row, term + i) : 0.f;
    }
    unsigned largest = 0;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) largest = largest8(x[s], largest);
    found[warp][lane] = largest;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < 8; ++w) largest = max(largest, found[w][lane]);
    __syncthreads();
    const float2 scale = scale_of(largest);
    if (padded) {
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        uint4 hi, lo;
        split8(x[s], scale.x, hi, lo);
        store_split<TILE, BLOCK_K, PLANES>(planes, stack, row, chunk * (CHUNK / 8) + s * 8 + warp, hi, lo);
      }
      if (warp == 0) planes.scales[(stack * planes.chunks + chunk) * int64_t(planes.tiles) * TILE + row] = scale.y;
    }
  }
}

// Launches whichever of the two fits the matrix.
template <int TILE, int BLOCK_K, int CHUNK, int PLANES = 2, class Source>
inline cudaError_t prepare(const Source& matrix, const Planes& planes, int stack, cudaStream_t stream,
                           Needed needed = Needed::ALL) {
  if (matrix.term_step == 1) {
    const int64_t warps = int64_t(planes.tiles) * (TILE / 8) * planes.chunks, wanted = (warps + 7) / 8;
    const dim3 grid(unsigned(wanted < (1 << 30) ? wanted : (1 << 30)), 1, stack);
    if (in_vectors(matrix))
      prepare_along<TILE, BLOCK_K, CHUNK, true, PLANES><<<grid, 256, 0, stream>>>(matrix, planes, needed);
    else
      prepare_along<TILE, BLOCK_K, CHUNK, false, PLANES><<<grid, 256, 0, stream>>>(matrix, planes, needed);
  } else {
    const dim3 grid((planes.tiles * TILE + 31) / 32, planes.chunks < 65535 ? planes.chunks : 65535, stack);
    prepare_across<TILE, BLOCK_K, CHUNK, PLANES><<<grid, 256, 0, stream>>>(matrix, planes, needed);
  }
  return cudaGetLastError();
}

// ---------------------------------------------------------------------------------------------------------------------
// Instructions
// ---------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier with the same offset in another thread block of the cluster.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

template <bool CLUSTER>
__device__ __forceinline__ void barrier_wait(uint32_t barrier, int phase) {
  uint32_t done = 0;
  while (!done) {
    if (CLUSTER)
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
          "selp.b32 %0, 1, 0, p;\n"
          "}\n"
          : "=r"(done)
          : "r"(barrier), "r"(phase)
          : "memory");
    else
      asm volatile(
          "{\n"
          ".reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
          "selp.b32 %0, 1, 0, p;\n"
          "}\n"
          : "=r"(done)
          : "r"(barrier), "r"(phase)
          : "memory");
  }
}

__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

// The same into all thread blocks of the mask, each of whose barriers is told.
__device__ __forceinline__ void bulk_copy_to(uint32_t to, const void* from, int bytes, uint32_t barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(mask)
      : "memory");
}

__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Tells the compiler that these registers are written here.
template <int N>
__device__ __forceinline__ void touch(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Descriptor of a plane of a block in shared memory: 8 rows of 16 bytes are contiguous (128 bytes), row groups follow
// each other, and the next 8 terms are ROWS * 16 bytes further on. No swizzling.
template <int ROWS>
__device__ __forceinline__ uint64_t describe(uint32_t address) {
  return uint64_t((address & 0x3ffff) >> 4) | (uint64_t(ROWS) << 16) | (uint64_t(128 >> 4) << 32);
}

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---------------------------------------------------------------------------------------------------------------------
// What part of the sum a tile of the result needs
// ---------------------------------------------------------------------------------------------------------------------

struct Extent {
  int first, last;  // chunks
};

// All of it, or one of several equal parts.
struct Full {
  int splits = 1;
  static constexpr bool ORDERED = false;
  template <class S>
  __device__ __forceinline__ Extent extent(int, int, int split, int chunks) const {
    return {int(int64_t(chunks) * split / splits), int(int64_t(chunks) * (split + 1) / splits)};
  }
};

// Tiles in the order of their distance to the upper right corner: the longest sums of a triangular product come first.
__device__ __forceinline__ int2 tile_by_diagonal(int index, int rows, int columns) {
  for (int diagonal = columns - 1; diagonal > -rows; --diagonal) {
    const int first = max(0, -diagonal), count = min(rows, columns - diagonal) - first;
    if (index < count) return make_int2(first + index, first + index + diagonal);
    index -= count;
  }
  return make_int2(0, 0);
}

// Both factors are upper triangular: term t matters for row <= t <= column.
struct Upper {
  static constexpr int splits = 1;
  static constexpr bool ORDERED = true;
  template <class S>
  __device__ __forceinline__ Extent extent(int tile_m, int tile_n, int, int chunks) const {
    const int first = tile_m * S::TILE_M / S::CHUNK, last = ((tile_n + 1) * S::TILE_N + S::CHUNK - 1) / S::CHUNK;
    return {first, last < chunks ? last : chunks};
  }
  __device__ __forceinline__ int2 tile(int index, int rows, int columns) const {
    return tile_by_diagonal(index, rows, columns);
  }
};

// Both factors are lower triangular: term t matters for column <= t <= row.
struct Lower {
  static constexpr int splits = 1;
  static constexpr bool ORDERED = true;
  template <class S>
  __device__ __forceinline__ Extent extent(int tile_m, int tile_n, int, int chunks) const {
    const int first = tile_n * S::TILE_N / S::CHUNK, last = ((tile_m + 1) * S::TILE_M + S::CHUNK - 1) / S::CHUNK;
    return {first, last < chunks ? last : chunks};
  }
  __device__ __forceinline__ int2 tile(int index, int rows, int columns) const {
    const int2 found = tile_by_diagonal(index, columns, rows);
    return make_int2(found.y, found.x);
  }
};

// ---------------------------------------------------------------------------------------------------------------------
// Epilogues. store() gets two neighbouring sums, finishes and stores them; the second one only counts where
// column + 1 < columns.
// ---------------------------------------------------------------------------------------------------------------------

struct Store {
  static constexpr bool REPAIRS = true;
  float* out;
  int64_t row_step, stack_step;
  int columns;
  bool pairs;  // elements of even columns are aligned to 8 bytes
  // For shapes that are STAGED: rows of a tile may be copied as they are, i.e. begin at multiples of 16 bytes.
  __device__ __forceinline__ bool by_rows() const { return row_step % 4 == 0 && columns % 4 == 0; }
  __device__ __forceinline__ float* row_at(int64_t slice, int row) const { return out + slice * stack_step + row * row_step; }
  // What is done to a sum before it is stored.
  __device__ __forceinline__ void finish(int64_t, int, int, float&, float&) const {}
  __device__ __forceinline__ void store(int64_t slice, int64_t, int row, int column, float u, float v) const {
    float* at = out + slice * stack_step + row * row_step + column;
    if (pairs && column + 1 < columns) {
      *reinterpret_cast<float2*>(at) = make_float2(u, v);
    } else {
      *at = u;
      if (column + 1 < columns) at[1] = v;
    }
  }
};

// Partial sums of a product that is split along its terms; `slice` counts them.
struct Partial {
  static constexpr bool REPAIRS = false;
  float* out;
  int64_t row_step, stack_step;
  int columns;
  bool pairs;
  __device__ __forceinline__ bool by_rows() const { return row_step % 4 == 0 && columns % 4 == 0; }
  __device__ __forceinline__ float* row_at(int64_t slice, int row) const { return out + slice * stack_step + row * row_step; }
  __device__ __forceinline__ void finish(int64_t, int, int, float&, float&) const {}
  __device__ __forceinline__ void store(int64_t slice, int64_t, int row, int column, float u, float v) const {
    Store{out, row_step, stack_step, columns, pairs}.store(slice, 0, row, column, u, v);
  }
};

// One element by ordinary arithmetic.
template <class A, class B>
__device__ __forceinline__ float plain_dot(const A& a, const B& b, int64_t stack, int row, int column, int terms) {
  float sum = 0.f;
  for (int t = 0; t < terms; ++t) sum = fmaf(a.at(stack, row, t), b.at(stack, column, t), sum);
  return sum;
}

// ---------------------------------------------------------------------------------------------------------------------
// The product
// ---------------------------------------------------------------------------------------------------------------------

struct Task {
  Planes a, b;
  int stack;         // products in the stack
  int64_t b_stack;   // 0: all products share one B, 1: each has its own
  int group;         // row tiles (or pairs of them in a cluster) that are worked on side by side
  int works;         // pieces of work in all
};

struct Work {
  int tile_m, tile_n, stack, split;
};

template <class S, class Part>
__device__ __forceinline__ Work work_at(const Task& task, const Part& part, int index) {
  const int rows = (task.a.tiles + S::CLUSTER - 1) / S::CLUSTER, columns = task.b.tiles;
  if constexpr (Part::ORDERED) {
    const int2 tile = part.tile(index % (rows * columns), rows, columns);
    return {tile.x, tile.y, index / (rows * columns), 0};
  }
  const int slice = index / (rows * columns);
  int rest = index % (rows * columns);
  const int wide = task.group * columns, first = rest / wide * task.group;
  const int high = min(rows - first, task.group);
  rest %= wide;
  Work work;
  work.tile_m = (first + rest % high) * S::CLUSTER;
  work.tile_n = rest / high;
  work.stack = slice / part.splits;
  work.split = slice % part.splits;
  return work;
}

// What a warpgroup of consumers does: `half` of the rows of the tile are its own.
template <class S, class Part, class Epilogue, class SourceA, class SourceB>
__device__ __forceinline__ void consume(const Task& task, const Part& part, const Epilogue& epilogue,
                                        const SourceA& source_a, const SourceB& source_b, int half, int rank,
                                        uint32_t base, uint32_t scales, uint32_t full, uint32_t empty,
                                        uint32_t results) {
  constexpr bool CLUSTERED = S::CLUSTER > 1;
  const int first_work = blockIdx.x / S::CLUSTER, step = gridDim.x / S::CLUSTER;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int local = half * 64 + warp * 16 + lane / 4;
  int stage = 0, phase = 0;
  float accumulator[S::TILE_N / 2], sum[S::TILE_N / 2];

  // Says that the stage may be filled again.
  auto release = [&](int which) {
    if (CLUSTERED) {
      __syncwarp();
#pragma unroll
      for (int r = 0; r < S::CLUSTER; ++r)
        if (lane == 0) barrier_arrive_at(empty + 8 * which, r);
    } else {
      barrier_arrive(empty + 8 * which);  // every lane for what it has read itself: racecheck follows no other way
    }
  };
  constexpr int A_PLANE = S::A_BYTES / 2, B_PLANE = S::B_BYTES / 2;
  constexpr int STEPS = S::BLOCK_K / 16;

  for (int index = first_work; index < task.works; index += step) {
    const Work work = work_at<S>(task, part, index);
    const Extent extent = part.template extent<S>(work.tile_m, work.tile_n, work.split, task.a.chunks);
#pragma unroll
    for (int i = 0; i < S::TILE_N / 2; ++i) sum[i] = 0.f;

    for (int chunk = extent.first; chunk < extent.last; ++chunk) {
      const int blocks = min(S::CHUNK_BLOCKS, task.a.term_blocks - chunk * S::CHUNK_BLOCKS);
      int held = stage;  // the oldest stage that is still in use
      touch(accumulator);
      if (S::SMALL_FIRST) {
        int s = stage, ph = phase;
        for (int block = 0; block < blocks; ++block) {
          barrier_wait<CLUSTERED>(full + 8 * s, ph);
          const uint32_t at_a = base + s * (S::A_BYTES + S::B_BYTES), at_b = at_a + S::A_BYTES;
          wgmma_begin();
#pragma unroll
          for (int k = 0; k < STEPS; ++k) {
            const uint32_t ka = at_a + half * 1024 + k * 2 * S::TILE_M * 16, kb = at_b + k * 2 * S::TILE_N * 16;
            Wgmma<S::TILE_N>::run(accumulator, describe<S::TILE_M>(ka + A_PLANE), describe<S::TILE_N>(kb),
                                  block > 0 || k > 0);
            Wgmma<S::TILE_N>::run(accumulator, describe<S::TILE_M>(ka), describe<S::TILE_N>(kb + B_PLANE), 1);
          }
          wgmma_commit();
          if (++s == S::STAGES) s = 0, ph ^= 1;
        }
        for (int block = 0; block < blocks; ++block) {
          const uint32_t at_a = base + stage * (S::A_BYTES + S::B_BYTES), at_b = at_a + S::A_BYTES;
          wgmma_begin();
#pragma unroll
          for (int k = 0; k < STEPS; ++k) {
            const uint32_t ka = at_a + half * 1024 + k * 2 * S::TILE_M * 16, kb = at_b + k * 2 * S::TILE_N * 16;
            Wgmma<S::TILE_N>::run(accumulator, describe<S::TILE_M>(ka), describe<S::TILE_N>(kb), 1);
          }
          wgmma_commit();
          if (block > 0) {
            wgmma_wait<1>();
            release(held);
          }
          held = stage;
          if (++stage == S::STAGES) stage = 0, phase ^= 1;
        }
      } else {
        for (int block = 0; block < blocks; ++block) {
          barrier_wait<CLUSTERED>(full + 8 * stage, phase);
          const uint32_t at_a = base + stage * (S::A_BYTES + S::B_BYTES), at_b = at_a + S::A_BYTES;
          wgmma_begin();
          if (S::PLANES == 2) {
#pragma unroll
            for (int k = 0; k < STEPS; ++k) {
              const uint32_t ka = at_a + half * 1024 + k * 2 * S::TILE_M * 16, kb = at_b + k * 2 * S::TILE_N * 16;
              Wgmma<S::TILE_N>::run(accumulator, describe<S::TILE_M>(ka + A_PLANE), describe<S::TILE_N>(kb),
                                    block > 0 || k > 0);
              Wgmma<S::TILE_N>::run(accumulator, describe<S::TILE_M>(ka), describe<S::TILE_N>(kb + B_PLANE), 1);
            }
          }
#pragma unroll
          for (int k = 0; k < STEPS; ++k) {
            const uint32_t ka = at_a + half * 1024 + k * 2 * S::TILE_M * 16, kb = at_b + k * 2 * S::TILE_N * 16;
            Wgmma<S::TILE_N>::run(accumulator, describe<S::TILE_M>(ka), describe<S::TILE_N>(kb),
                                  S::PLANES == 2 || block > 0 || k > 0);
          }
          wgmma_commit();
          if (block > 0) {
            wgmma_wait<1>();
            release(held);
          }
          held = stage;
          if (++stage == S::STAGES) stage = 0, phase ^= 1;
        }
      }
      wgmma_wait<0>();
      touch(accumulator);
      // The scales came with the last block of the chunk, which is `held`.
      const uint32_t at = scales + held * S::SCALE_BYTES;
      float scale_0, scale_1;
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale_0) : "r"(at + local * 4) : "memory");
      asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale_1) : "r"(at + local * 4 + 32) : "memory");
      const uint32_t at_columns = at + S::TILE_M * 4 + lane % 4 * 8;
#pragma unroll
      for (int j = 0; j < S::TILE_N / 8; ++j) {
        float left, right;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(left), "=f"(right) : "r"(at_columns + j * 32));
        sum[4 * j] = fmaf(accumulator[4 * j], left * scale_0, sum[4 * j]);
        sum[4 * j + 1] = fmaf(accumulator[4 * j + 1], right * scale_0, sum[4 * j + 1]);
        sum[4 * j + 2] = fmaf(accumulator[4 * j + 2], left * scale_1, sum[4 * j + 2]);
        sum[4 * j + 3] = fmaf(accumulator[4 * j + 3], right * scale_1, sum[4 * j + 3]);
      }
      release(held);
    }

    const int64_t slice = int64_t(work.stack) * part.splits + work.split;
    const int row = (work.tile_m + rank) * S::TILE_M + local;
    const int column = work.tile_n * S::TILE_N + lane % 4 * 2;
    // 0, or NaN where one of the sums is NaN or infinite.
    float flaw = 0.f;
    if (Epilogue::REPAIRS || S::STAGED) {
#pragma unroll
      for (int i = 0; i < S::TILE_N / 2; ++i) flaw = fmaf(sum[i], 0.f, flaw);
    }
    const bool sound = !__any_sync(0xffffffffu, flaw != 0.f);
    if constexpr (S::STAGED) {
      if (sound && epilogue.by_rows()) {
        const uint32_t mine = results + (half * 4 + warp) * 16 * S::RESULT_STEP;
        const uint32_t to = mine + lane / 4 * S::RESULT_STEP + lane % 4 * 8;
#pragma unroll
        for (int j = 0; j < S::TILE_N / 8; ++j) {
          epilogue.finish(work.stack, row, column + 8 * j, sum[4 * j], sum[4 * j + 1]);
          epilogue.finish(work.stack, row + 8, column + 8 * j, sum[4 * j + 2], sum[4 * j + 3]);
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + j * 32), "f"(sum[4 * j]), "f"(sum[4 * j + 1])
                       : "memory");
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + j * 32 + 8 * S::RESULT_STEP), "f"(sum[4 * j + 2]),
                       "f"(sum[4 * j + 3])
                       : "memory");
        }
        __syncwarp();
        const int first = work.tile_n * S::TILE_N, top = (work.tile_m + rank) * S::TILE_M + half * 64 + warp * 16;
        constexpr int QUADS = S::TILE_N / 4;  // of a row
#pragma unroll 4
        for (int i = 0; i < 16 * QUADS / 32; ++i) {
          const int r = (i * 32 + lane) / QUADS, c = (i * 32 + lane) % QUADS * 4;
          float4 v;
          asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                       : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                       : "r"(mine + r * S::RESULT_STEP + c * 4)
                       : "memory");
          if (top + r < task.a.rows && first + c < task.b.rows)
            *reinterpret_cast<float4*>(epilogue.row_at(slice, top + r) + first + c) = v;
        }
        __syncwarp();
        continue;
      }
    }
    uint32_t odd[(S::TILE_N / 8 + 7) / 8] = {};  // which elements are NaN
#pragma unroll
    for (int j = 0; j < S::TILE_N / 8; ++j) {
      if (Epilogue::REPAIRS && !sound) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (sum[4 * j + i] != sum[4 * j + i]) odd[j / 8] |= 1u << (j % 8 * 4 + i);
      }
      if (column + 8 * j < task.b.rows) {
        if (row < task.a.rows) epilogue.store(slice, work.stack, row, column + 8 * j, sum[4 * j], sum[4 * j + 1]);
        if (row + 8 < task.a.rows)
          epilogue.store(slice, work.stack, row + 8, column + 8 * j, sum[4 * j + 2], sum[4 * j + 3]);
      }
    }
    if (Epilogue::REPAIRS && !sound) {
#pragma unroll 1
      for (int word = 0; word < (S::TILE_N / 8 + 7) / 8; ++word) {
        uint32_t bits = 0;
#pragma unroll
        for (int w = 0; w < (S::TILE_N / 8 + 7) / 8; ++w)
          if (w == word) bits = odd[w];
        while (bits) {
          const int pair = (__ffs(bits) - 1) / 2;  // pairs of elements of one row
          bits &= ~(3u << (2 * pair));
          const int r = row + pair % 2 * 8, c = column + 8 * (word * 8 + pair / 2);
          if (r >= task.a.rows || c >= task.b.rows) continue;
          const float u = plain_dot(source_a, source_b, work.stack, r, c, task.a.terms);
          const float v =
              c + 1 < task.b.rows ? plain_dot(source_a, source_b, work.stack, r, c + 1, task.a.terms) : 0.f;
          epilogue.store(slice, work.stack, r, c, u, v);
        }
      }
    }
  }
}

template <class S, class Part, class Epilogue, class SourceA, class SourceB>
__global__ void __launch_bounds__(S::THREADS, 1)
    product_kernel(const Task task, const Part part, const Epilogue epilogue, const SourceA source_a,
                   const SourceB source_b) {
  extern __shared__ __align__(128) char memory[];
  const uint32_t base = (shared_address(memory) + 127) / 128 * 128;
  const uint32_t scales = base + S::STAGES * (S::A_BYTES + S::B_BYTES);
  const uint32_t results = scales + S::STAGES * S::SCALE_BYTES;
  const uint32_t full = results + S::RESULT_BYTES, empty = full + S::STAGES * 8;
  const int group = threadIdx.x / 128;
  const int rank = S::CLUSTER > 1 ? cluster_rank() : 0;
  constexpr bool CLUSTERED = S::CLUSTER > 1;

  if (threadIdx.x == 0) {
    for (int s = 0; s < S::STAGES; ++s) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, CLUSTERED ? 8 * S::CLUSTER : 256);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  if (CLUSTERED)
    cluster_sync();
  else
    __syncthreads();

  const int first_work = blockIdx.x / S::CLUSTER, step = gridDim.x / S::CLUSTER;

  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    if (threadIdx.x == 0) {
      int stage = 0, phase = 0;
      for (int index = first_work; index < task.works; index += step) {
        const Work work = work_at<S>(task, part, index);
        const Extent extent = part.template extent<S>(work.tile_m, work.tile_n, work.split, task.a.chunks);
        const int tile_m = min(work.tile_m + rank, task.a.tiles - 1);
        const int64_t stack_b = work.stack * task.b_stack;
        const char* a = task.a.blocks + (int64_t(work.stack) * task.a.tiles + tile_m) * task.a.term_blocks * S::A_BYTES;
        const char* b = task.b.blocks + (stack_b * task.b.tiles + work.tile_n) * task.b.term_blocks * S::B_BYTES;
        const float* scale_a =
            task.a.scales + int64_t(work.stack) * task.a.chunks * task.a.tiles * S::TILE_M + tile_m * S::TILE_M;
        const float* scale_b =
            task.b.scales + stack_b * task.b.chunks * task.b.tiles * S::TILE_N + work.tile_n * S::TILE_N;
        const int end = min(extent.last * S::CHUNK_BLOCKS, task.a.term_blocks);
        for (int block = extent.first * S::CHUNK_BLOCKS; block < end; ++block) {
          barrier_wait<CLUSTERED>(empty + 8 * stage, phase ^ 1);
          const uint32_t ready = full + 8 * stage, to = base + stage * (S::A_BYTES + S::B_BYTES);
          const bool closes = block + 1 == end || (block + 1) % S::CHUNK_BLOCKS == 0;  // a chunk: scales come with it
          barrier_expect(ready, S::A_BYTES + S::B_BYTES + (closes ? S::SCALE_BYTES : 0));
          bulk_copy(to, a + int64_t(block) * S::A_BYTES, S::A_BYTES, ready);
          if (CLUSTERED) {
            constexpr int SHARE = S::B_BYTES / S::CLUSTER;
            bulk_copy_to(to + S::A_BYTES + rank * SHARE, b + int64_t(block) * S::B_BYTES + rank * SHARE, SHARE, ready,
                         uint16_t((1 << S::CLUSTER) - 1));
          } else {
            bulk_copy(to + S::A_BYTES, b + int64_t(block) * S::B_BYTES, S::B_BYTES, ready);
          }
          if (closes) {
            const int chunk = block / S::CHUNK_BLOCKS;
            const uint32_t at = scales + stage * S::SCALE_BYTES;
            bulk_copy(at, scale_a + int64_t(chunk) * task.a.tiles * S::TILE_M, S::TILE_M * 4, ready);
            bulk_copy(at + S::TILE_M * 4, scale_b + int64_t(chunk) * task.b.tiles * S::TILE_N, S::TILE_N * 4, ready);
          }
          if (++stage == S::STAGES) stage = 0, phase ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
    consume<S>(task, part, epilogue, source_a, source_b, group - 1, rank, base, scales, full, empty,
               results);
  }
  if (CLUSTERED) cluster_sync();  // nobody leaves while others may still write to its shared memory
}

// Adds the parts of a product that was split along its terms.
template <class Epilogue, class SourceA, class SourceB>
__global__ void __launch_bounds__(256)
    add_parts(const float* parts, int splits, int stack, int rows, int columns, int terms, const Epilogue epilogue,
              const SourceA source_a, const SourceB source_b) {
  const int64_t width = (columns + 1) / 2, count = int64_t(stack) * rows * width, plane = int64_t(rows) * columns;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < count; i += int64_t(gridDim.x) * 256) {
    const int column = int(i % width) * 2, row = int(i / width % rows);
    const int64_t member = i / width / rows;
    const float* from = parts + member * splits * plane + int64_t(row) * columns + column;
    const bool both = column + 1 < columns;
    float u = 0.f, v = 0.f;
#pragma unroll 4
    for (int s = 0; s < splits; ++s) {
      u += __ldcs(from + s * plane);
      if (both) v += __ldcs(from + s * plane + 1);
    }
    if (u != u || v != v) {
      u = plain_dot(source_a, source_b, member, row, column, terms);
      if (both) v = plain_dot(source_a, source_b, member, row, column + 1, terms);
    }
    epilogue.store(member, member, row, column, u, v);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// Launching
// ---------------------------------------------------------------------------------------------------------------------

inline int multiprocessors() {
  int device = 0, count = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

template <class Kernel, class Part, class Epilogue, class SourceA, class SourceB>
inline cudaError_t start(Kernel kernel, int blocks, int threads, int shared, int cluster, cudaStream_t stream,
                         const Task& task, const Part& part, const Epilogue& epilogue, const SourceA& a,
                         const SourceB& b) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = cluster;
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = cluster > 1 ? 1 : 0;
  error = cudaLaunchKernelEx(&config, kernel, task, part, epilogue, a, b);
  return error != cudaSuccess ? error : cudaGetLastError();
}

template <class S, class Part, class Epilogue, class SourceA, class SourceB>
inline cudaError_t run_product(Task task, const Part& part, const Epilogue& epilogue, const SourceA& a, const SourceB& b,
                               cudaStream_t stream) {
  const int rows = (task.a.tiles + S::CLUSTER - 1) / S::CLUSTER;
  task.works = rows * task.b.tiles * task.stack * part.splits;
  const int most = multiprocessors() / S::CLUSTER;
  const int blocks = (task.works < most || Part::ORDERED ? task.works : most) * S::CLUSTER;
  return start(product_kernel<S, Part, Epilogue, SourceA, SourceB>, blocks, S::THREADS, S::SHARED_BYTES, S::CLUSTER,
               stream, task, part, epilogue, a, b);
}

}  // namespace split
}  // namespace warpsmith
