// Products of float32 matrices to which tensor cores bring nothing, in float32 arithmetic: one factor has few rows, so that
// reading the other one takes the time; or the whole product is so small that starting it does.
//
// is_small() says which products these are. register_product.cuh takes up to 16 rows or columns from here and has its own
// kernels for the other small ones; matmul.cuh is for the large ones.
#pragma once

#include <warpsmith/matmul.cuh>

namespace warpsmith {
namespace small_product {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int64_t kFew = 24, kFlops = 100'000'000;  // rows of the smaller factor; operations of a small product
constexpr int64_t kSharedFloats = 12'000;           // of the part of the smaller factor that a block holds

// A product seen from its smaller factor.
struct Sides {
  split::Matrix few, many;
  int64_t count_few, count_many, terms;
  float* out;
  int64_t few_step, many_step, stack_step;  // of the result
  const float *bias_few, *bias_many;        // nullptr: none
  __device__ __forceinline__ void store(int64_t stack, int64_t f, int64_t m, float sum) const {
    if (bias_few) sum += __ldg(bias_few + f);
    if (bias_many) sum += __ldg(bias_many + m);
    out[stack * stack_step + f * few_step + m * many_step] = sum;
  }
  // Where the sum over a slice of the terms is kept.
  __device__ __forceinline__ int64_t part(int64_t stack, int64_t slice, int64_t slices, int64_t f) const {
    return ((stack * slices + slice) * count_few + f) * count_many;
  }
};
struct Slices {
  int64_t count, terms;  // terms of each
};

// Copies the terms of a slice of the smaller factor to shared memory, FEW rows; rows that do not exist are 0.
template <int FEW, bool BY_TERMS>
__device__ __forceinline__ void hold(const Sides& s, int64_t stack, int64_t first, int count, float* x) {
  const bool along = s.few.term_step == 1;
  for (int i = int(threadIdx.x); i < count * FEW; i += kThreads) {
    const int f = along ? i / count : i % FEW, t = along ? i % count : i / FEW;
    x[BY_TERMS ? t * FEW + f : f * count + t] = f < s.count_few ? s.few.at(stack, f, first + t) : 0.0f;
  }
  __syncthreads();
}

// Thread blocks of few_across on a multiprocessor.
constexpr int blocks_across(int few) { return few <= 8 ? 4 : few <= 16 ? 3 : 2; }

// The larger factor has neighbouring rows of a term beside each other: a thread has two rows, of all terms of a slice. Loads
// are on their way while other thread blocks multiply.
template <int FEW>
__global__ void __launch_bounds__(kThreads, blocks_across(FEW)) few_across(Sides s, Slices slices, float* parts) {
  constexpr int U = 8;  // terms that are loaded together
  extern __shared__ __align__(16) float x[];
  const int64_t stack = blockIdx.z, slice = blockIdx.y, first = slice * slices.terms;
  const int count = int(s.terms - first < slices.terms ? s.terms - first : slices.terms);
  const int64_t row = int64_t(blockIdx.x) * (2 * kThreads) + threadIdx.x;
  const bool exists[2] = {row < s.count_many, row + kThreads < s.count_many};
  const int64_t step = s.many.term_step;
  const float* w[2];  // rows that do not exist are read as the first one, and not stored
#pragma unroll
  for (int r = 0; r < 2; ++r) w[r] = s.many.row_at(stack, exists[r] ? row + r * kThreads : 0) + first * step;
  float now[U][2], sum[2][FEW];
#pragma unroll
  for (int f = 0; f < FEW; ++f) sum[0][f] = sum[1][f] = 0.0f;
  auto load = [&](int u) {
#pragma unroll
    for (int r = 0; r < 2; ++r) now[u][r] = __ldg(w[r]), w[r] += step;
  };
  auto add = [&](int u, int term) {
#pragma unroll
    for (int f = 0; f < FEW; f += 4) {
      const float4 four = *reinterpret_cast<const float4*>(x + term * FEW + f);
      const float value[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int r = 0; r < 2; ++r) sum[r][f + e] = fmaf(now[u][r], value[e], sum[r][f + e]);
    }
  };
  if (count >= U) {
#pragma unroll
    for (int u = 0; u < U; ++u) load(u);
  }
  hold<FEW, true>(s, stack, first, count, x);
  int from = 0;
#pragma unroll 1
  for (; from + U <= count; from += U) {
#pragma unroll
    for (int u = 0; u < U; ++u) add(u, from + u);
    if (from + 2 * U > count) continue;
#pragma unroll
    for (int u = 0; u < U; ++u) load(u);
  }
  // Fewer than U terms are left.
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (from + u < count) load(u);
#pragma unroll
  for (int u = 0; u < U; ++u)
    if (from + u < count) add(u, from + u);
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int f = 0; f < FEW; ++f)
      if (exists[r] && f < s.count_few) {
        if (slices.count > 1)
          parts[s.part(stack, slice, slices.count, f) + row + r * kThreads] = sum[r][f];
        else
          s.store(stack, f, row + r * kThreads, sum[r][f]);
      }
}

// The larger factor has the terms of a row beside each other: a warp has ROWS rows, of all terms of a slice.
template <int FEW, int ROWS>
__global__ void __launch_bounds__(kThreads) few_along(Sides s, Slices slices, float* parts) {
  static_assert(FEW * ROWS % 32 == 0, "sums are added 32 at a time");
  extern __shared__ __align__(16) float x[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t stack = blockIdx.z, slice = blockIdx.y, first = slice * slices.terms;
  const int count = int(s.terms - first < slices.terms ? s.terms - first : slices.terms);
  const int64_t row = (int64_t(blockIdx.x) * kWarps + warp) * ROWS;
  const float* w[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    w[r] = s.many.row_at(stack, row + r < s.count_many ? row + r : s.count_many - 1) + first;
  float now[2][ROWS], next[2][ROWS], sum[ROWS * FEW];
#pragma unroll
  for (int i = 0; i < ROWS * FEW; ++i) sum[i] = 0.0f;
  auto load = [&](float (&v)[2][ROWS], int from) {
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
      for (int r = 0; r < ROWS; ++r) v[u][r] = from + u * 32 + lane < count ? __ldg(w[r] + from + u * 32 + lane) : 0.0f;
  };
  load(next, 0);
  hold<FEW, false>(s, stack, first, count, x);
  for (int from = 0; from < count; from += 64) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) now[0][r] = next[0][r], now[1][r] = next[1][r];
    load(next, from + 64);
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const int t = from + u * 32 + lane;
      if (t >= count) break;
#pragma unroll
      for (int f = 0; f < FEW; ++f) {
        const float value = x[f * count + t];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum[f * ROWS + r] = fmaf(now[u][r], value, sum[f * ROWS + r]);
      }
    }
  }
  __syncwarp();
  // In five steps the lanes add 32 sums: with every step a lane hands half of its sums to another lane.
#pragma unroll
  for (int i = 0; i < ROWS * FEW; i += 32) {
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = sum[i + k];
#pragma unroll
    for (int half = 16; half; half /= 2)
#pragma unroll
      for (int k = 0; k < half; ++k) {
        const bool upper = lane & half;
        const float kept = upper ? v[k + half] : v[k], given = upper ? v[k] : v[k + half];
        v[k] = kept + __shfl_xor_sync(0xffffffffu, given, half);
      }
    const int f = (i + lane) / ROWS, r = (i + lane) % ROWS;
    if (f < s.count_few && row + r < s.count_many) {
      if (slices.count > 1)
        parts[s.part(stack, slice, slices.count, f) + row + r] = v[0];
      else
        s.store(stack, f, row + r, v[0]);
    }
  }
}

// Adds the slices of 32 neighbouring elements; a warp takes every eighth slice.
__global__ void __launch_bounds__(kThreads) add_slices(Sides s, int64_t slices, const float* __restrict__ parts) {
  __shared__ float found[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t m = int64_t(blockIdx.x) * 32 + lane, f = blockIdx.y, stack = blockIdx.z, step = s.count_few * s.count_many;
  const float* from = parts + s.part(stack, 0, slices, f) + (m < s.count_many ? m : 0);
  float sum = 0.0f;
  for (int64_t i = warp; i < slices; i += 8 * kWarps) {
    float v[8];
#pragma unroll
    for (int u = 0; u < 8; ++u) v[u] = i + u * kWarps < slices ? __ldg(from + (i + u * kWarps) * step) : 0.0f;
    sum += ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  }
  found[warp][lane] = sum;
  __syncthreads();
  if (warp || m >= s.count_many) return;
  float all = 0.0f;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all += found[w][lane];
  s.store(stack, f, m, all);
}

// Brings 32 rows of eight terms to shared memory, eight elements for each lane of a warp.
struct Lane {
  const float* at;    // its first element
  int64_t apart;      // from one of its elements to the next
  int rows, left;     // rows and terms that exist from the first element on
  int row_apart, term_apart, to, to_apart;
  __device__ __forceinline__ Lane(const split::Matrix& m, int64_t stack, int64_t from, int64_t count, int64_t first,
                                  int64_t terms, int width) {
    const int lane = threadIdx.x % 32;
    const bool along = m.term_step == 1;  // neighbouring lanes have neighbouring terms, or neighbouring rows
    const int r = along ? lane / 8 : lane, t = along ? lane % 8 : 0;
    at = m.row_at(stack, from + r) + (first + t) * m.term_step;
    apart = along ? 4 * m.row_step : m.term_step;
    row_apart = along ? 4 : 0, term_apart = along ? 0 : 1;
    rows = int(count - from - r < 32 ? count - from - r : 32), left = int(terms - first - t);
    to = t * width + r, to_apart = along ? 4 : width;
  }
  __device__ __forceinline__ void load(float (&v)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = j * row_apart < rows && j * term_apart < left ? __ldg(at + j * apart) : 0.0f;
  }
  __device__ __forceinline__ void put(const float (&v)[8], float* memory) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) memory[to + j * to_apart] = v[j];
  }
  __device__ __forceinline__ void advance(int terms, int64_t step) { at += terms * step, left -= terms; }
};

// A block has 32 x 32 elements of the result; each of its warps takes every WARPS-th group of eight terms.
template <int WARPS>
__global__ void __launch_bounds__(WARPS * 32)
    small_tiles(split::Matrix a, split::Matrix b, Product p, float* out, const float* bias) {
  constexpr int TERMS = 8, WIDTH = 36;
  __shared__ __align__(16) float memory[WARPS][1024];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t stack = blockIdx.z, row = int64_t(blockIdx.y) * 32, column = int64_t(blockIdx.x) * 32;
  float *of_a = memory[warp], *of_b = memory[warp] + TERMS * WIDTH;
  const int top = lane / 8 * 8, left = lane % 8 * 4;  // of the 8 x 4 elements of a lane
  float next_a[8], next_b[8], sum[8][4];
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) sum[i][j] = 0.0f;
  Lane first(a, stack, row, p.rows, warp * TERMS, p.terms, WIDTH), second(b, stack, column, p.columns, warp * TERMS, p.terms, WIDTH);
  first.load(next_a), second.load(next_b);
  for (int64_t term = warp * TERMS; term < p.terms; term += WARPS * TERMS) {
    first.put(next_a, of_a), second.put(next_b, of_b);
    __syncwarp();
    first.advance(WARPS * TERMS, a.term_step), second.advance(WARPS * TERMS, b.term_step);
    first.load(next_a), second.load(next_b);
#pragma unroll
    for (int t = 0; t < TERMS; ++t) {
      const float4 u = *reinterpret_cast<const float4*>(of_a + t * WIDTH + top);
      const float4 v = *reinterpret_cast<const float4*>(of_a + t * WIDTH + top + 4);
      const float4 w = *reinterpret_cast<const float4*>(of_b + t * WIDTH + left);
      const float rows[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w}, columns[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(rows[i], columns[j], sum[i][j]);
    }
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) memory[warp][(top + i) * 32 + left + j] = sum[i][j];
  __syncthreads();
  for (int i = int(threadIdx.x); i < 1024; i += WARPS * 32) {
    const int64_t r = row + i / 32, c = column + i % 32;
    if (r >= p.rows || c >= p.columns) continue;
    float all = 0.0f;
    for (int w = 0; w < WARPS; ++w) all += memory[w][i];
    out[(stack * p.rows + r) * p.columns + c] = bias ? all + __ldg(bias + c) : all;
  }
}

inline bool has_few(const Product& p) { return p.rows <= kFew || p.columns <= kFew; }
inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// How the terms are shared out: as many slices as there is room for at a time, but few, because their sums go through memory.
inline Slices slices_for(const Product& p, bool along) {
  const int64_t few = least(p.rows, p.columns), many = p.rows + p.columns - few, padded = few <= 4 ? 4 : (few + 7) / 8 * 8;
  const int64_t rows = along ? kWarps * (few <= 4 ? 8 : 4) : 2 * kThreads;
  const int64_t blocks = (many + rows - 1) / rows * p.stack, unit = along ? 64 : 8;
  const int64_t room = split::multiprocessors() * int64_t(along ? 4 : blocks_across(int(padded)));
  const int64_t wanted = along ? room / blocks + 1 : room > blocks ? room / blocks : 1;
  int64_t terms = ((p.terms + wanted - 1) / wanted + unit - 1) / unit * unit;
  const int64_t shortest = along ? (8 * padded > 128 ? 8 * padded : 128) : 6 * padded + 8;
  terms = terms < shortest ? shortest : terms;
  terms = least(terms, kSharedFloats / padded / unit * unit);
  return {(p.terms + terms - 1) / terms, terms};
}
template <int FEW>
cudaError_t launch_few(const Sides& s, const Product& p, bool along, float* parts, cudaStream_t stream) {
  constexpr int ROWS = FEW <= 4 ? 8 : 4;
  const Slices slices = slices_for(p, along);
  const int64_t rows = along ? kWarps * ROWS : 2 * kThreads;
  const dim3 grid(unsigned((s.count_many + rows - 1) / rows), unsigned(slices.count), unsigned(p.stack));
  const size_t bytes = size_t(least(slices.terms, p.terms)) * FEW * 4;
  if (along)
    few_along<FEW, ROWS><<<grid, kThreads, bytes, stream>>>(s, slices, parts);
  else
    few_across<FEW><<<grid, kThreads, bytes, stream>>>(s, slices, parts);
  if (slices.count > 1) {
    const dim3 all(unsigned((s.count_many + 31) / 32), unsigned(s.count_few), unsigned(p.stack));
    add_slices<<<all, kThreads, 0, stream>>>(s, slices.count, parts);
  }
  return cudaGetLastError();
}

}  // namespace small_product

inline bool is_small(const Product& p) {
  if (p.stack > 65535 || p.terms > (1 << 22) || p.rows * p.columns * p.terms * p.stack == 0) return false;
  return small_product::has_few(p) ||
         (2.0 * p.stack * p.rows * p.columns * p.terms <= small_product::kFlops && p.rows <= 65535 * 32);
}

// Bytes of workspace that multiply_small() needs.
inline int64_t small_bytes(const Product& p) {
  if (!small_product::has_few(p)) return 0;
  const int64_t most = small_product::slices_for(p, true).count, other = small_product::slices_for(p, false).count;
  return p.stack * (most > other ? most : other) * p.rows * p.columns * 4;
}

// The product, plus a bias for each column unless that is nullptr.
inline cudaError_t multiply_small(const Product& p, const split::Matrix& a, const split::Matrix& b, float* out,
                                  const float* bias, void* workspace, cudaStream_t stream) {
  using namespace small_product;
  if (!has_few(p)) {
    const dim3 grid(unsigned((p.columns + 31) / 32), unsigned((p.rows + 31) / 32), unsigned(p.stack));
    if (p.terms > 64)
      small_tiles<8><<<grid, 256, 0, stream>>>(a, b, p, out, bias);
    else
      small_tiles<2><<<grid, 64, 0, stream>>>(a, b, p, out, bias);
    return cudaGetLastError();
  }
  const bool rows = p.rows <= p.columns;
  const Sides s = rows ? Sides{a, b, p.rows, p.columns, p.terms, out, p.columns, 1, p.rows * p.columns, nullptr, bias}
                       : Sides{b, a, p.columns, p.rows, p.terms, out, 1, p.columns, p.rows * p.columns, bias, nullptr};
  const bool along = s.many.term_step == 1;
  float* parts = static_cast<float*>(workspace);
  if (s.count_few <= 4) return launch_few<4>(s, p, along, parts, stream);
  if (s.count_few <= 8) return launch_few<8>(s, p, along, parts, stream);
  if (s.count_few <= 16) return launch_few<16>(s, p, along, parts, stream);
  return launch_few<24>(s, p, along, parts, stream);
}

}  // namespace warpsmith
