// Products of float32 matrices, and of stacks of them, that are too small or too thin for matmul.cuh: one launch reads the
// factors as they lie in memory, or two launches where the terms are shared out between thread blocks.
//
// matmul.cuh first writes both factors to memory in parts, in a launch each. That pays for long sums over many rows and
// columns. It costs more than the product itself where the product has less than some 10^9 operations, where the terms are
// so few that writing the result takes the time, or where one factor is far larger than the other.
//
//   tile       A thread block has a tile of the result. Chunks of 32 terms of its rows and columns come to shared memory by
//              asynchronous copies of 4, 8 or 16 bytes, whatever the addresses allow. Warps split them into TF32 parts in
//              registers and multiply them on the tensor cores (mma_tf32.cuh), with the accuracy of float32; the sums are
//              added to float32 registers after every chunk. The tile leaves through shared memory, row by row.
//   few_terms  At most 16 terms: float32 arithmetic, and the time is that of writing the result.
//
// Up to 16 rows or columns are left to small_product.cuh. by_registers() says which products all these are for, by an
// estimate of the time of either way.
#pragma once

#ifndef TUNE_TILE
#define TUNE_TILE -1  // for measurements: the number of a Tile, or -1 for the estimate
#endif

#include <type_traits>

#include <warpsmith/mma_tf32.cuh>
#include <warpsmith/small_product.cuh>

namespace warpsmith {
namespace register_product {

constexpr int kChunk = 32;     // terms that are added up on the tensor cores
constexpr int64_t kMostBlocks = (int64_t(1) << 31) - 1;  // of a launch
constexpr int kFewTerms = 16;  // of products in float32 arithmetic
constexpr int kFewRows = 16;   // of products that small_product.cuh is for

// Floats from one row of `count` floats to the next: an odd multiple of 8, so that four rows lie in different banks.
constexpr int apart(int count) { return count % 16 ? count : count + 8; }

// PIECES_M x PIECES_N pieces of 16 x 8 elements for a warp, WARPS_M x WARPS_N warps side by side: a team. TEAMS of one warp
// share out the chunks of the same tile. BLOCKS thread blocks have room on a multiprocessor.
template <int PIECES_M_, int PIECES_N_, int WARPS_M_, int WARPS_N_, int TEAMS_, int STAGES_, int BLOCKS_>
struct Shape {
  static constexpr int PIECES_M = PIECES_M_, PIECES_N = PIECES_N_, WARPS_M = WARPS_M_, WARPS_N = WARPS_N_;
  static constexpr int TEAMS = TEAMS_, STAGES = STAGES_, BLOCKS = BLOCKS_;
  static constexpr int ROWS = PIECES_M * 16 * WARPS_M, COLUMNS = PIECES_N * 8 * WARPS_N;
  static constexpr int TEAM = WARPS_M * WARPS_N * 32, THREADS = TEAM * TEAMS;
  static constexpr int OUT_STEP = apart(COLUMNS);  // floats between rows of the result: no two lanes of a store share a bank
  // So many warps that they need not put instructions between those that add to the same registers; registers are scarce.
  static constexpr bool CROWDED = THREADS * BLOCKS > 640;
  static_assert(TEAMS == 1 || TEAM == 32, "teams wait for themselves as warps");
};
using Square = Shape<2, 4, 2, 2, 1, 3, 4>;    // 64 x 64
using Large = Shape<2, 4, 4, 2, 1, 3, 2>;     // 128 x 64
using Tall = Shape<1, 10, 4, 1, 1, 3, 3>;     // 64 x 80
using Wide = Shape<5, 2, 1, 4, 1, 3, 3>;      // 80 x 64
using Narrow = Shape<1, 4, 4, 1, 1, 3, 5>;    // 64 x 32
using Flat = Shape<2, 2, 1, 4, 1, 3, 5>;      // 32 x 64
using Long = Shape<1, 5, 13, 1, 1, 3, 2>;     // 208 x 40
using Fine = Shape<1, 5, 4, 1, 1, 2, 6>;      // 64 x 40
using Broad = Shape<1, 7, 7, 1, 1, 3, 3>;     // 112 x 56
using Tiny = Shape<2, 4, 1, 1, 8, 1, 2>;      // 32 x 32, a chunk for each of eight warps

// Where a chunk of a factor lies in shared memory. ACROSS: neighbouring rows lie side by side in memory, else neighbouring
// terms. Lanes of a warp read eight rows of four terms at a time, from different banks.
template <int ROWS, bool ACROSS>
struct Held {
  static constexpr int STEP = ACROSS ? apart(ROWS) : kChunk + 4;
  static constexpr int ROW = ACROSS ? 1 : STEP, TERM = ACROSS ? STEP : 1;
  static constexpr int FLOATS = STEP * (ACROSS ? kChunk : ROWS);
};

template <class S, bool A_ACROSS, bool B_ACROSS>
constexpr int shared_bytes() {
  constexpr int stages = S::STAGES * (Held<S::ROWS, A_ACROSS>::FLOATS + Held<S::COLUMNS, B_ACROSS>::FLOATS);
  constexpr int result = S::ROWS * S::OUT_STEP;
  return S::TEAMS * (stages > result ? stages : result) * 4;
}

struct Job {
  split::Matrix a, b;
  int64_t rows, columns, terms;
  int64_t slice;                              // terms of a stretch that a thread block adds up: whole chunks
  unsigned row_tiles, column_tiles, stack, slices;
  int64_t first_stack, stack_of_all;          // the products of this launch, and of all launches
  int unit_a, unit_b;                         // floats that are copied at a time: 1, 2 or 4
  bool vectors;                               // rows of the result begin at multiples of 16 bytes
  float* out;                                 // the result, or the sums of the slices: [slices][stack][rows][columns]
  const float* bias;                          // for each column; nullptr: none
};

// An element of the result in plain arithmetic. A factor that is not finite, or near the end of the range, makes a sum NaN on
// the tensor cores.
__device__ __forceinline__ float in_plain_arithmetic(const Job& job, int64_t stack, int64_t row, int64_t column) {
  float sum = job.bias ? __ldg(job.bias + column) : 0.0f;
#pragma unroll 1
  for (int64_t t = 0; t < job.terms; ++t) sum = fmaf(job.a.at(stack, row, t), job.b.at(stack, column, t), sum);
  return sum;
}

// Copies UNIT floats to an address in shared memory. Only `bytes` bytes exist; the others become 0.
template <int UNIT>
__device__ __forceinline__ void copy_later(uint32_t to, const float* from, int bytes) {
  if (UNIT == 4)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes), "n"(UNIT * 4) : "memory");
}
__device__ __forceinline__ void copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void copies_arrived() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Copies OUTER stretches of INNER floats, of which some exist. STEP: between stretches in shared memory; step: in memory.
// ACROSS: stretches are terms, else rows, and those that do not exist may stay what they are. Terms that do not exist become
// 0 up to the next multiple of 8; those beyond are never read.
template <int OUTER, int INNER, int STEP, int UNIT, int THREADS, bool ACROSS>
__device__ __forceinline__ void fetch_units(uint32_t to, const float* from, int64_t step, int outer_left, int inner_left,
                                            int thread) {
  constexpr int UNITS = INNER / UNIT, LANES = UNITS > 16 ? 32 : UNITS > 8 ? 16 : 8, PER = THREADS / LANES;
  const int outer = thread / LANES;
#pragma unroll
  for (int u = 0; u < UNITS; u += LANES) {
    const int inner = (u + thread % LANES) * UNIT, left = inner_left - inner;
    if (ACROSS ? left <= 0 : (UNITS % LANES && inner >= INNER) || inner >= (inner_left + 7) / 8 * 8) continue;
    const int bytes = left >= UNIT ? UNIT * 4 : left > 0 ? left * 4 : 0;
    const float* row = from + outer * step + (left > 0 ? inner : 0);
    const uint32_t at = to + (outer * STEP + inner) * 4;
#pragma unroll
    for (int o = 0; o < OUTER; o += PER, row += PER * step) {
      if (OUTER % PER && outer + o >= OUTER) continue;
      if (outer + o < outer_left)
        copy_later<UNIT>(at + o * STEP * 4, row, bytes);
      else if (ACROSS && outer + o < (outer_left + 7) / 8 * 8)
        copy_later<UNIT>(at + o * STEP * 4, from, 0);
    }
  }
}
template <int ROWS, bool ACROSS, int THREADS>
__device__ __forceinline__ void fetch(uint32_t to, const split::Matrix& m, const float* from, int rows, int terms, int unit,
                                      int thread) {
  constexpr int OUTER = ACROSS ? kChunk : ROWS, INNER = ACROSS ? ROWS : kChunk, STEP = Held<ROWS, ACROSS>::STEP;
  const int64_t step = ACROSS ? m.term_step : m.row_step;
  const int outer = ACROSS ? terms : rows, inner = ACROSS ? rows : terms;
  if (unit == 4)
    fetch_units<OUTER, INNER, STEP, 4, THREADS, ACROSS>(to, from, step, outer, inner, thread);
  else if (unit == 2)
    fetch_units<OUTER, INNER, STEP, 2, THREADS, ACROSS>(to, from, step, outer, inner, thread);
  else
    fetch_units<OUTER, INNER, STEP, 1, THREADS, ACROSS>(to, from, step, outer, inner, thread);
}

__device__ __forceinline__ int at_most(int64_t n, int most) { return n < most ? int(n) : most; }

// The parts of a factor; one part in the TF32 class, where a NaN must not be lost.
template <bool EXACT>
__device__ __forceinline__ void split(float x, uint32_t& big, uint32_t& small) {
  const mma::Parts parts = EXACT ? mma::split(x) : mma::Parts{mma::rounded(x), 0};
  big = parts.big, small = parts.small;
}

// One chunk: the sums of a warp's pieces, added to `sum`.
template <class S, class A, class B, bool EXACT>
__device__ __forceinline__ void multiply_chunk(const float* a, const float* b, int terms,
                                               float (&sum)[S::PIECES_M][S::PIECES_N][4]) {
  float d[S::PIECES_M][S::PIECES_N][4];
#pragma unroll
  for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
    for (int j = 0; j < S::PIECES_N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[i][j][e] = 0.0f;
#pragma unroll
  for (int k = 0; k < kChunk; k += 8) {
    if (k >= terms) break;
    uint32_t big_a[S::PIECES_M][4], big_b[S::PIECES_N][2], small_a[S::PIECES_M][4], small_b[S::PIECES_N][2];
#pragma unroll
    for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        split<EXACT>(a[(i * 16 + e % 2 * 8) * A::ROW + (k + e / 2 * 4) * A::TERM], big_a[i][e], small_a[i][e]);
    if (S::CROWDED) {
#pragma unroll
      for (int j = 0; j < S::PIECES_N; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) split<EXACT>(b[j * 8 * B::ROW + (k + e * 4) * B::TERM], big_b[0][e], small_b[0][e]);
#pragma unroll
        for (int i = 0; i < S::PIECES_M; ++i) {
          if (EXACT) mma::multiply(d[i][j], small_a[i], big_b[0]), mma::multiply(d[i][j], big_a[i], small_b[0]);
          mma::multiply(d[i][j], big_a[i], big_b[0]);
        }
      }
      continue;
    }
#pragma unroll
    for (int j = 0; j < S::PIECES_N; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) split<EXACT>(b[j * 8 * B::ROW + (k + e * 4) * B::TERM], big_b[j][e], small_b[j][e]);
    // Instructions that add to the same registers are far from each other.
    if (EXACT) {
#pragma unroll
      for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
        for (int j = 0; j < S::PIECES_N; ++j) mma::multiply(d[i][j], small_a[i], big_b[j]);
#pragma unroll
      for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
        for (int j = 0; j < S::PIECES_N; ++j) mma::multiply(d[i][j], big_a[i], small_b[j]);
    }
#pragma unroll
    for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
      for (int j = 0; j < S::PIECES_N; ++j) mma::multiply(d[i][j], big_a[i], big_b[j]);
  }
#pragma unroll
  for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
    for (int j = 0; j < S::PIECES_N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] += d[i][j][e];
}

// Writes a tile from shared memory, UNIT floats for a lane; the teams' sums are added up. A thread has the same columns of
// every row it writes: an element is little more than a load and a store.
template <class S, int UNIT>
__device__ __forceinline__ void store_rows(const Job& job, const float* memory, float* out, int64_t stack, int64_t row,
                                           int64_t column, int rows, int columns) {
  constexpr int UNITS = S::COLUMNS / UNIT, LANES = UNITS > 16 ? 32 : UNITS > 8 ? 16 : 8, PASSES = (UNITS + LANES - 1) / LANES;
  constexpr int PER = S::THREADS / LANES, EACH = (S::ROWS + PER - 1) / PER;  // rows at a time, rows of a thread
  constexpr int TOGETHER = S::TEAMS > 1 || EACH % 2 ? 1 : EACH % 4 ? 2 : 4;
  const int first = int(threadIdx.x) / LANES, side = int(threadIdx.x) % LANES * UNIT;
  const int64_t step = job.columns;
  float add[PASSES][UNIT];
#pragma unroll
  for (int k = 0; k < PASSES; ++k)
#pragma unroll
    for (int e = 0; e < UNIT; ++e) {
      const int c = side + k * LANES * UNIT + e;
      add[k][e] = job.slices == 1 && job.bias && c < columns ? __ldg(job.bias + column + c) : 0.0f;
    }
  float probe = 0.0f;  // becomes NaN if an element is infinite or NaN
  const float* from = memory + first * S::OUT_STEP + side;
  float* to = out + first * step + side;
#pragma unroll 1
  for (int r = first; r < rows; r += TOGETHER * PER, from += TOGETHER * PER * S::OUT_STEP, to += TOGETHER * PER * step) {
    float v[TOGETHER][PASSES][UNIT];
#pragma unroll
    for (int u = 0; u < TOGETHER; ++u)
#pragma unroll
      for (int k = 0; k < PASSES; ++k)
        if (UNITS % LANES == 0 || side + k * LANES * UNIT < S::COLUMNS) {
#pragma unroll
          for (int team = 0; team < S::TEAMS; ++team) {
            const float* const at = from + (team * S::ROWS + u * PER) * S::OUT_STEP + k * LANES * UNIT;
            float w[UNIT];
            if (UNIT == 4) {
              const float4 four = *reinterpret_cast<const float4*>(at);
              w[0] = four.x, w[UNIT > 1] = four.y, w[UNIT / 2] = four.z, w[UNIT - 1] = four.w;
            } else {
              w[0] = *at;
            }
#pragma unroll
            for (int e = 0; e < UNIT; ++e) v[u][k][e] = w[e] + (team ? v[u][k][e] : add[k][e]);
          }
        }
    float* here = to;
#pragma unroll
    for (int u = 0; u < TOGETHER; ++u, here += PER * step)
#pragma unroll
      for (int k = 0; k < PASSES; ++k) {
        if (r + u * PER >= rows || side + k * LANES * UNIT >= columns) continue;
#pragma unroll
        for (int e = 0; e < UNIT; ++e) probe = fmaf(v[u][k][e], 0.0f, probe);
        if (UNIT == 4)
          *reinterpret_cast<float4*>(here + k * LANES * UNIT) =
              make_float4(v[u][k][0], v[u][k][UNIT > 1], v[u][k][UNIT / 2], v[u][k][UNIT - 1]);
        else
          here[k * LANES] = v[u][k][0];
      }
  }
  if (probe == 0.0f || job.slices > 1) return;
#pragma unroll 1
  for (int r = first; r < rows; r += PER)
#pragma unroll 1
    for (int i = 0; i < PASSES * UNIT; ++i) {
      const int c = side + i / UNIT * (LANES * UNIT) + i % UNIT;
      if (c >= columns) break;
      float sum = 0.0f;
#pragma unroll 1
      for (int team = 0; team < S::TEAMS; ++team) sum += memory[(team * S::ROWS + r) * S::OUT_STEP + c];
      if (sum != sum) out[r * step + c] = in_plain_arithmetic(job, stack, row + r, column + c);
    }
}

template <class S, bool A_ACROSS, bool B_ACROSS, bool EXACT>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS - (S::CROWDED && A_ACROSS)) tile(Job job) {
  using A = Held<S::ROWS, A_ACROSS>;
  using B = Held<S::COLUMNS, B_ACROSS>;
  constexpr int STAGE = A::FLOATS + B::FLOATS;
  extern __shared__ __align__(16) float memory[];
  const int lane = threadIdx.x % 32, team = threadIdx.x / S::TEAM, thread = threadIdx.x % S::TEAM, warp = thread / 32;
  unsigned number = blockIdx.x;
  const int64_t column = int64_t(number % job.column_tiles) * S::COLUMNS;
  number /= job.column_tiles;
  const int64_t row = int64_t(number % job.row_tiles) * S::ROWS;
  number /= job.row_tiles;
  const int64_t slice = number % job.slices, stack = job.first_stack + number / job.slices;
  const int rows = at_most(job.rows - row, S::ROWS), columns = at_most(job.columns - column, S::COLUMNS);
  const int64_t begin = slice * job.slice, left = job.terms - begin < job.slice ? job.terms - begin : job.slice;
  const int chunks = int((left + kChunk - 1) / kChunk), mine = chunks > team ? (chunks - team + S::TEAMS - 1) / S::TEAMS : 0;
  const float* const a = job.a.row_at(stack, row) + begin * job.a.term_step;
  const float* const b = job.b.row_at(stack, column) + begin * job.b.term_step;
  float* const own = memory + team * (S::STAGES * STAGE);
  const uint32_t address = uint32_t(__cvta_generic_to_shared(own));
  const int top = warp / S::WARPS_N * (S::PIECES_M * 16), side = warp % S::WARPS_N * (S::PIECES_N * 8);
  const bool works = top < rows && side < columns;
  float sum[S::PIECES_M][S::PIECES_N][4];
#pragma unroll
  for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
    for (int j = 0; j < S::PIECES_N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
  // Copies are STAGES - 1 chunks ahead; with one stage a chunk is copied when the one before has been read.
  constexpr int AHEAD = S::STAGES > 1 ? S::STAGES - 1 : 1;
#pragma unroll 1
  for (int n = -AHEAD; n < mine; ++n) {
    if (n >= 0 && S::STAGES > 1) {
      copies_arrived<AHEAD - 1>();
      __syncthreads();
    }
    const int next = S::STAGES > 1 ? n + AHEAD : n;
    if (next >= 0 && next < mine) {
      const int64_t term = (int64_t(next) * S::TEAMS + team) * kChunk;
      const uint32_t to = address + next % S::STAGES * (STAGE * 4);
      const int terms = at_most(left - term, kChunk);
      if (S::STAGES == 1) __syncwarp();
      const float *const next_a = a + term * job.a.term_step, *const next_b = b + term * job.b.term_step;
      fetch<S::ROWS, A_ACROSS, S::TEAM>(to, job.a, next_a, rows, terms, job.unit_a, thread);
      fetch<S::COLUMNS, B_ACROSS, S::TEAM>(to + A::FLOATS * 4, job.b, next_b, columns, terms, job.unit_b, thread);
    }
    copies_begun();
    if (n >= 0 && S::STAGES == 1) {
      copies_arrived<0>();
      __syncwarp();
    }
    if (n >= 0 && works) {
      const float* const at = own + n % S::STAGES * STAGE;
      multiply_chunk<S, A, B, EXACT>(at + (top + lane / 4) * A::ROW + lane % 4 * A::TERM,
                                     at + A::FLOATS + (side + lane / 4) * B::ROW + lane % 4 * B::TERM,
                                     at_most(left - (int64_t(n) * S::TEAMS + team) * kChunk, kChunk), sum);
    }
  }
  // The tile leaves row by row.
  __syncthreads();
  float* const tile = memory + team * (S::ROWS * S::OUT_STEP);
  if (works) {
#pragma unroll
    for (int i = 0; i < S::PIECES_M; ++i)
#pragma unroll
      for (int j = 0; j < S::PIECES_N; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          *reinterpret_cast<float2*>(tile + (top + i * 16 + h * 8 + lane / 4) * S::OUT_STEP + side + j * 8 + lane % 4 * 2) =
              make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
  }
  __syncthreads();
  float* const out = job.out + ((slice * job.stack_of_all + stack) * job.rows + row) * job.columns + column;
  if (job.vectors)
    store_rows<S, 4>(job, memory, out, stack, row, column, rows, columns);
  else
    store_rows<S, 1>(job, memory, out, stack, row, column, rows, columns);
}

// Adds the sums of the slices of 32 neighbouring elements; a warp takes every eighth slice.
static __global__ void __launch_bounds__(256) add_parts(Job job, const float* parts, float* out) {
  __shared__ float found[8][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t count = job.stack_of_all * job.rows * job.columns, element = int64_t(blockIdx.x) * 32 + lane;
  const float* const from = parts + (element < count ? element : 0);
  float sum = 0.0f;
  for (unsigned s = warp; s < job.slices; s += 64) {
    float v[8];
#pragma unroll
    for (unsigned u = 0; u < 8; ++u) v[u] = s + 8 * u < job.slices ? __ldcg(from + (s + 8 * u) * count) : 0.0f;
    sum += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
  found[warp][lane] = sum;
  __syncthreads();
  if (warp || element >= count) return;
  float all = 0.0f;
#pragma unroll
  for (int w = 0; w < 8; ++w) all += found[w][lane];
  if (job.bias) all += __ldg(job.bias + element % job.columns);
  if (all != all) {
    const int64_t row = element / job.columns;
    all = in_plain_arithmetic(job, row / job.rows, row % job.rows, element % job.columns);
  }
  out[element] = all;
}

// A thread block has 64 x 256 elements, a thread four columns of 16 rows: the factor of its columns stays in registers.
template <int TERMS>
__global__ void __launch_bounds__(256) few_terms(Job job) {
  constexpr int ROWS = 64, COLUMNS = 256;
  __shared__ __align__(16) float x[ROWS * TERMS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, terms = int(job.terms);
  unsigned number = blockIdx.x;
  const int64_t column = int64_t(number % job.column_tiles) * COLUMNS + warp % 2 * 128 + lane;
  number /= job.column_tiles;
  const int64_t row = int64_t(number % job.row_tiles) * ROWS, stack = job.first_stack + number / job.row_tiles;
  for (int i = int(threadIdx.x); i < ROWS * TERMS; i += 256) {
    const int r = i / TERMS, t = i % TERMS;
    x[i] = row + r < job.rows && t < terms ? job.a.at(stack, row + r, t) : 0.0f;
  }
  float y[TERMS][4], add[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const bool exists = column + 32 * j < job.columns;
    add[j] = job.bias && exists ? __ldg(job.bias + column + 32 * j) : 0.0f;
#pragma unroll
    for (int t = 0; t < TERMS; ++t) y[t][j] = exists && t < terms ? job.b.at(stack, column + 32 * j, t) : 0.0f;
  }
  __syncthreads();
  const int first = warp / 2 * 16, rows = at_most(job.rows - row - first, 16);
  float* out = job.out + (stack * job.rows + row + first) * job.columns + column;
  for (int r = 0; r < rows; ++r, out += job.columns) {
    float sum[4] = {};
#pragma unroll
    for (int t = 0; t < TERMS; t += 4) {
      const float4 four = *reinterpret_cast<const float4*>(x + (first + r) * TERMS + t);
      const float value[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j] = fmaf(value[e], y[t + e][j], sum[j]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (column + 32 * j < job.columns) out[32 * j] = sum[j] + add[j];
  }
}

// --- how a product is computed ---

enum class Tile { SQUARE, LARGE, TALL, WIDE, NARROW, FLAT, TINY, LONG, FINE, BROAD };  // the last three: for stacks
struct Plan {
  Tile tile;
  int64_t slices, slice;
  double time;  // estimated, in microseconds
};

// The estimate, in clock cycles and bytes. A piece of eight terms is three instructions, eight cycles each, of one of the four
// tensor cores of a multiprocessor; warps beyond the edge of the result have none. A warp on its own takes 16 cycles for an
// instruction, and 60 for every eight terms. Memory gives 3.4e6 bytes in a microsecond, the second-level cache 5e6. A launch
// with its first and last bytes takes 4 microseconds.
template <class S>
inline void consider(const Product& p, Tile tile, bool exact, Plan& best) {
  if (TUNE_TILE >= 0 ? int(tile) != TUNE_TILE : tile > Tile::TINY && p.stack == 1) return;
  const double cycles_per_us = 1600, memory = 3.4e6, cache = 5e6, launch = 4.0;
  const int sms = split::multiprocessors();
  const auto parts = [](int64_t n, int size) { return (n + size - 1) / size; };
  const double tiles = double(p.stack) * parts(p.rows, S::ROWS) * parts(p.columns, S::COLUMNS);
  const double warps = double(p.stack) * parts(p.rows, S::PIECES_M * 16) * parts(p.columns, S::PIECES_N * 8);
  const int64_t chunks = parts(p.terms, kChunk), steps = parts(p.terms, 8);
  const int instructions = S::PIECES_M * S::PIECES_N * (exact ? 3 : 1);
  const double factors = double(p.stack) * p.rows * p.terms + double(p.shared_b ? 1 : p.stack) * p.columns * p.terms;
  const double result = double(p.stack) * p.rows * p.columns;
  const double bytes = (factors + result) * 4 / memory;
  const double near = (tiles * (S::ROWS + S::COLUMNS) * double(p.terms) + result) * 4 / cache;
  for (int on_each = 0; on_each <= S::BLOCKS; ++on_each) {  // thread blocks for a multiprocessor; 0: one slice
    int64_t slices = 1;
    if (on_each) {
      if (S::TEAMS > 1 || tiles * 1.5 > sms * on_each) continue;
      slices = int64_t(sms * on_each / tiles);
      if (slices > chunks) slices = chunks;
      if (slices < 2) continue;
    }
    const int64_t slice = (chunks + slices - 1) / slices;
    if (slice) slices = (chunks + slice - 1) / slice;
    const double blocks = tiles * double(slices), each = double(slices > 1 ? slice * 4 : steps);
    const double rounds = ceil(blocks / sms) / (blocks / sms);  // more than 1: some multiprocessors have a block more
    const double even = warps * steps * instructions * 8.0 / (4 * sms) * rounds;
    const double chain = ceil(blocks / (sms * S::BLOCKS)) * (each / S::TEAMS * (instructions * 16.0 + 60) + 1600);
    double loop = (even > chain ? even : chain) / cycles_per_us;
    loop = loop > bytes ? loop : bytes;
    loop = loop > near ? loop : near;
    const double after = slices > 1 ? launch + result * double(slices) * 8 / cache : 0.0;
    if (launch + loop + after < best.time) best = {tile, slices, slice * kChunk, launch + loop + after};
  }
}

inline Plan plan_for(const Product& p, bool exact) {
  Plan best = {Tile::SQUARE, 1, (p.terms + kChunk - 1) / kChunk * kChunk, 1e30};
  consider<Square>(p, Tile::SQUARE, exact, best);
  consider<Large>(p, Tile::LARGE, exact, best);
  consider<Tall>(p, Tile::TALL, exact, best);
  consider<Wide>(p, Tile::WIDE, exact, best);
  consider<Narrow>(p, Tile::NARROW, exact, best);
  consider<Flat>(p, Tile::FLAT, exact, best);
  consider<Tiny>(p, Tile::TINY, exact, best);
  consider<Long>(p, Tile::LONG, exact, best);
  consider<Fine>(p, Tile::FINE, exact, best);
  consider<Broad>(p, Tile::BROAD, exact, best);
  return best;
}

// Read the larger factor once, in float32 arithmetic.
inline bool has_few_rows(const Product& p) { return (p.rows <= kFewRows || p.columns <= kFewRows) && is_small(p); }
inline bool has_few_terms(const Product& p) { return p.terms <= kFewTerms && p.rows >= 32 && p.columns >= 128; }

// Floats that can be copied at a time.
inline int unit_of(const split::Matrix& m) {
  const int64_t step = m.term_step == 1 ? m.row_step : m.term_step;
  const int64_t together = step | m.stack_step | int64_t(reinterpret_cast<uintptr_t>(m.data) / 4);
  return together % 4 == 0 ? 4 : together % 2 == 0 ? 2 : 1;
}

template <class Class>
constexpr bool exact() { return !std::is_same<Class, Tf32>::value; }

// Launches for as many products of the stack as a grid has thread blocks for.
template <class Launch>
inline cudaError_t in_turn(Job job, int64_t blocks_each, Launch launch) {
  const int64_t most = blocks_each < kMostBlocks ? kMostBlocks / blocks_each : 1;
  for (; job.first_stack < job.stack_of_all; job.first_stack += most) {
    const int64_t left = job.stack_of_all - job.first_stack;
    job.stack = unsigned(left < most ? left : most);
    launch(job, unsigned(job.stack * blocks_each));
  }
  return cudaGetLastError();
}

template <class S, bool A_ACROSS, bool B_ACROSS, bool EXACT>
inline cudaError_t launch_tiles(Job job, cudaStream_t stream) {
  constexpr int bytes = shared_bytes<S, A_ACROSS, B_ACROSS>();
  const auto kernel = tile<S, A_ACROSS, B_ACROSS, EXACT>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  job.row_tiles = unsigned((job.rows + S::ROWS - 1) / S::ROWS);
  job.column_tiles = unsigned((job.columns + S::COLUMNS - 1) / S::COLUMNS);
  return in_turn(job, int64_t(job.row_tiles) * job.column_tiles * job.slices, [&](const Job& part, unsigned blocks) {
    kernel<<<blocks, S::THREADS, bytes, stream>>>(part);
  });
}

template <int TERMS>
inline cudaError_t launch_few_terms(Job job, cudaStream_t stream) {
  job.row_tiles = unsigned((job.rows + 63) / 64), job.column_tiles = unsigned((job.columns + 255) / 256);
  return in_turn(job, int64_t(job.row_tiles) * job.column_tiles, [&](const Job& part, unsigned blocks) {
    few_terms<TERMS><<<blocks, 256, 0, stream>>>(part);
  });
}

}  // namespace register_product

// Whether multiply_in_registers() is estimated to be clearly faster than multiply(). What matmul.cuh
// estimates for sums of at most 128 terms has been measured to take about twice as long. `way`, for measurements: 1 for
// multiply() wherever tiles are the other way, 2 for tiles; 0 for the estimate.
template <class Class = Float32>
inline bool by_registers(const Product& p, int way = 0) {
  using namespace register_product;
  if (p.stack * p.rows * p.columns * p.terms == 0 || has_few_terms(p) || has_few_rows(p)) return true;
  if (way) return way == 2;
  const int sms = split::multiprocessors();
  warpsmith::Plan plan = {Way::NARROW, 1};
  double time = 1e30;
  warpsmith::consider<typename Class::Wide>(p, Way::WIDE, Class::WIDE_CYCLES, sms, plan, time);
  warpsmith::consider<typename Class::Narrow>(p, Way::NARROW, Class::NARROW_CYCLES, sms, plan, time);
  if (p.terms <= 128) time *= 2;
  return 1.25 * register_product::plan_for(p, exact<Class>()).time < time;
}

// Bytes of workspace that multiply_in_registers() needs.
template <class Class = Float32>
inline int64_t register_bytes(const Product& p) {
  using namespace register_product;
  if (has_few_terms(p)) return 0;
  if (has_few_rows(p)) return small_bytes(p);
  const register_product::Plan plan = register_product::plan_for(p, exact<Class>());
  return plan.slices > 1 ? plan.slices * p.stack * p.rows * p.columns * 4 : 0;
}

namespace register_product {

template <bool A_ACROSS, bool B_ACROSS, bool EXACT>
inline cudaError_t multiply_by(const Plan& plan, const Product& p, const split::Matrix& a, const split::Matrix& b, float* out,
                               const float* bias, void* workspace, cudaStream_t stream) {
  Job job = {a, b, p.rows, p.columns, p.terms, plan.slice, 1, 1, 1, unsigned(plan.slices), 0, p.stack, unit_of(a), unit_of(b),
             false, plan.slices > 1 ? static_cast<float*>(workspace) : out, bias};
  job.vectors = p.columns % 4 == 0 && reinterpret_cast<uintptr_t>(job.out) % 16 == 0;
  cudaError_t error = cudaSuccess;
  switch (plan.tile) {
    case Tile::SQUARE: error = launch_tiles<Square, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::LARGE: error = launch_tiles<Large, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::TALL: error = launch_tiles<Tall, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::WIDE: error = launch_tiles<Wide, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::NARROW: error = launch_tiles<Narrow, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::FLAT: error = launch_tiles<Flat, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::TINY: error = launch_tiles<Tiny, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::LONG: error = launch_tiles<Long, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::FINE: error = launch_tiles<Fine, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
    case Tile::BROAD: error = launch_tiles<Broad, A_ACROSS, B_ACROSS, EXACT>(job, stream); break;
  }
  if (error != cudaSuccess || plan.slices == 1) return error;
  const int64_t blocks = (p.stack * p.rows * p.columns + 31) / 32;
  add_parts<<<unsigned(blocks), 256, 0, stream>>>(job, job.out, out);
  return cudaGetLastError();
}

}  // namespace register_product

// The product, plus a bias for each column unless that is nullptr. A_ACROSS, B_ACROSS: the factor is stored transposed(),
// else plain().
template <bool A_ACROSS, bool B_ACROSS, class Class = Float32>
inline cudaError_t multiply_in_registers(const Product& p, const split::Matrix& a, const split::Matrix& b, float* out,
                                         const float* bias, void* workspace, cudaStream_t stream) {
  using namespace register_product;
  if (p.stack * p.rows * p.columns == 0) return cudaSuccess;
  if (has_few_terms(p)) {
    const Job job = {a, b, p.rows, p.columns, p.terms, 0, 1, 1, 1, 1, 0, p.stack, 1, 1, false, out, bias};
    if (p.terms <= 4) return launch_few_terms<4>(job, stream);
    if (p.terms <= 8) return launch_few_terms<8>(job, stream);
    return launch_few_terms<16>(job, stream);
  }
  if (has_few_rows(p)) return multiply_small(p, a, b, out, bias, workspace, stream);
  const register_product::Plan plan = register_product::plan_for(p, exact<Class>());
  return multiply_by<A_ACROSS, B_ACROSS, exact<Class>()>(plan, p, a, b, out, bias, workspace, stream);
}

}  // namespace warpsmith
