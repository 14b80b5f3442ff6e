// Running sums and products along the rows of a matrix: one read and one write of every element.
//
// A block takes a row and walks along it in chunks, with the next chunk already being loaded. Inside a chunk every warp
// scans a stretch of its own: a pack in a thread, the packs of a warp by shuffles, the warps of a block through shared
// memory (one barrier per chunk). What lies before an element is always summed from what lies before it, never found by
// subtraction, so infinities do not turn earlier or excluded elements into NaN.
#pragma once
#include <warpsmith/packs.cuh>

namespace warpsmith {

struct Plus {
  static constexpr float identity = 0.0f;
  static __device__ __forceinline__ float apply(float a, float b) { return a + b; }
};
struct Times {
  static constexpr float identity = 1.0f;
  static __device__ __forceinline__ float apply(float a, float b) { return a * b; }
};

struct NoMask {};

template <int VEC>
struct Elements {
  float at[VEC];
};

// Loads VEC neighbouring elements (times their mask) in the order in which they are scanned.
template <int VEC, bool REVERSE, bool MASKED>
__device__ __forceinline__ Elements<VEC> load_elements(const float* x, const bool* mask, int64_t cols, int64_t at) {
  Elements<VEC> e;
  if constexpr (VEC == 4) {
    const int64_t from = REVERSE ? cols - 4 - at : at;
    const float4 v = load_once(x + from);
    float w[4] = {v.x, v.y, v.z, v.w};
    if constexpr (MASKED) {
      const uchar4 m = __ldcs(reinterpret_cast<const uchar4*>(mask + from));
      w[0] *= float(m.x != 0), w[1] *= float(m.y != 0), w[2] *= float(m.z != 0), w[3] *= float(m.w != 0);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) e.at[i] = w[REVERSE ? 3 - i : i];
  } else {
    const int64_t from = REVERSE ? cols - 1 - at : at;
    e.at[0] = __ldg(x + from);
    if constexpr (MASKED) e.at[0] *= mask[from] ? 1.0f : 0.0f;
  }
  return e;
}
template <int VEC, bool REVERSE>
__device__ __forceinline__ void store_elements(float* out, int64_t cols, int64_t at, const Elements<VEC>& e) {
  if constexpr (VEC == 4) {
    if constexpr (REVERSE)
      store_once(out + cols - 4 - at, make_float4(e.at[3], e.at[2], e.at[1], e.at[0]));
    else
      store_once(out + at, make_float4(e.at[0], e.at[1], e.at[2], e.at[3]));
  } else {
    out[REVERSE ? cols - 1 - at : at] = e.at[0];
  }
}

// One block per row. THREADS threads, PACKS packs of VEC elements per thread and chunk.
template <typename Op, bool REVERSE, bool EXCLUSIVE, bool MASKED, int THREADS, int PACKS, int VEC>
__global__ void __launch_bounds__(THREADS) scan_rows(const float* __restrict__ x, const bool* __restrict__ mask,
                                                     float* __restrict__ out, int64_t cols) {
  constexpr int WARPS = THREADS / 32;
  constexpr int STRETCH = 32 * PACKS * VEC;  // elements of a warp in a chunk
  constexpr int CHUNK = STRETCH * WARPS;
  __shared__ float totals[2][WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = blockIdx.x;
  x += row * cols;
  if (MASKED) mask += row * cols;
  out += row * cols;
  const int64_t mine = int64_t(warp) * STRETCH + lane * VEC;
  Elements<VEC> ahead[PACKS];
#pragma unroll
  for (int p = 0; p < PACKS; ++p) {
    const int64_t at = mine + p * 32 * VEC;
    if (at < cols) ahead[p] = load_elements<VEC, REVERSE, MASKED>(x, mask, cols, at);
    else
#pragma unroll
      for (int i = 0; i < VEC; ++i) ahead[p].at[i] = Op::identity;
  }
  float carry = Op::identity;
  int turn = 0;
  for (int64_t start = 0; start < cols; start += CHUNK, turn ^= 1) {
    Elements<VEC> now[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) now[p] = ahead[p];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int64_t at = start + CHUNK + mine + p * 32 * VEC;
      if (at < cols) ahead[p] = load_elements<VEC, REVERSE, MASKED>(x, mask, cols, at);
      else
#pragma unroll
        for (int i = 0; i < VEC; ++i) ahead[p].at[i] = Op::identity;
    }
    // Within the threads, then within the warp, all packs side by side.
    float before[PACKS], whole[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      float sum = now[p].at[0];
#pragma unroll
      for (int i = 1; i < VEC; ++i) sum = Op::apply(sum, now[p].at[i]);
      before[p] = sum;
    }
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
      whole[p] = __shfl_sync(kAll, before[p], 31);
      const float other = __shfl_up_sync(kAll, before[p], 1);
      before[p] = lane == 0 ? run : Op::apply(run, other);
      run = Op::apply(run, whole[p]);
    }
    // Across the warps of the block.
    float base = carry;
    if constexpr (WARPS > 1) {
      if (lane == 0) totals[turn][warp] = run;
      __syncthreads();
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        const float t = totals[turn][w];
        if (w < warp) base = Op::apply(base, t);
        carry = Op::apply(carry, t);
      }
    } else {
      carry = Op::apply(carry, run);
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int64_t at = start + mine + p * 32 * VEC;
      float sum = Op::apply(base, before[p]);
      Elements<VEC> e;
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        if (EXCLUSIVE) e.at[i] = sum;
        sum = Op::apply(sum, now[p].at[i]);
        if (!EXCLUSIVE) e.at[i] = sum;
      }
      if (at < cols) store_elements<VEC, REVERSE>(out, cols, at, e);
    }
  }
}

// Launches the scan of `rows` rows of `cols` elements.
template <typename Op, bool REVERSE, bool EXCLUSIVE, bool MASKED, int THREADS, int PACKS>
int scan(const float* x, const bool* mask, float* out, int64_t rows, int64_t cols, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (rows == 0 || cols == 0) return 0;
  if (cols % 4 == 0)
    scan_rows<Op, REVERSE, EXCLUSIVE, MASKED, THREADS, PACKS, 4><<<unsigned(rows), THREADS, 0, s>>>(x, mask, out, cols);
  else
    scan_rows<Op, REVERSE, EXCLUSIVE, MASKED, 128, 4, 1><<<unsigned(rows), 128, 0, s>>>(x, mask, out, cols);
  return int(cudaGetLastError());
}

}  // namespace warpsmith
