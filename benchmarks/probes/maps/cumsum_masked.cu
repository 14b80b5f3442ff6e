// cumsum of masked elements along the rows: `scan_rows` of scan.cuh, but the mask is applied when a chunk is used, not when
// it is loaded. There the product of element and mask is what is kept for the next chunk, so every chunk waits for the loads
// of the next one before it ends.
#include <warpsmith/scan.cuh>

#ifndef TUNE_THREADS
#define TUNE_THREADS 128
#endif
#ifndef TUNE_PACKS
#define TUNE_PACKS 4
#endif

namespace {
using namespace warpsmith;

struct Raw {
  float4 value;
  unsigned mask;  // four bytes
};
__device__ __forceinline__ float masked(float v, unsigned mask, int i) {
  return v * (mask >> (8 * i) & 0xffu ? 1.0f : 0.0f);
}

template <int THREADS, int PACKS>
__global__ void __launch_bounds__(THREADS) masked_rows(const float* __restrict__ x, const bool* __restrict__ mask,
                                                       float* __restrict__ out, int64_t cols) {
  constexpr int WARPS = THREADS / 32, STRETCH = 128 * PACKS, CHUNK = STRETCH * WARPS;
  __shared__ float totals[2][WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = blockIdx.x;
  x += row * cols, mask += row * cols, out += row * cols;
  const int64_t mine = int64_t(warp) * STRETCH + lane * 4;
  Raw ahead[PACKS];
  auto load = [&](int64_t start) {
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int64_t at = start + mine + p * 128;
      ahead[p].value = make_float4(0.0f, 0.0f, 0.0f, 0.0f), ahead[p].mask = 0;
      if (at < cols) {
        ahead[p].value = load_once(x + at);
        ahead[p].mask = __ldcs(reinterpret_cast<const unsigned*>(mask + at));
      }
    }
  };
  load(0);
  float carry = 0.0f;
  int turn = 0;
  for (int64_t start = 0; start < cols; start += CHUNK, turn ^= 1) {
    float now[PACKS][4], before[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const Raw& r = ahead[p];
      now[p][0] = masked(r.value.x, r.mask, 0), now[p][1] = masked(r.value.y, r.mask, 1);
      now[p][2] = masked(r.value.z, r.mask, 2), now[p][3] = masked(r.value.w, r.mask, 3);
    }
    load(start + CHUNK);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) before[p] = ((now[p][0] + now[p][1]) + now[p][2]) + now[p][3];
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
        const float other = __shfl_up_sync(kAll, before[p], step);
        if (lane >= step) before[p] = other + before[p];
      }
    float run = 0.0f;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const float whole = __shfl_sync(kAll, before[p], 31);
      const float other = __shfl_up_sync(kAll, before[p], 1);
      before[p] = lane == 0 ? run : run + other;
      run = run + whole;
    }
    float base = carry;
    if (lane == 0) totals[turn][warp] = run;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float t = totals[turn][w];
      if (w < warp) base = base + t;
      carry = carry + t;
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      const int64_t at = start + mine + p * 128;
      float4 o;
      o.x = (base + before[p]) + now[p][0];
      o.y = o.x + now[p][1], o.z = o.y + now[p][2], o.w = o.z + now[p][3];
      if (at < cols) store_once(out + at, o);
    }
  }
}
}  // namespace

extern "C" int launch(const float* x, const bool* mask, float* out, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  if (rows == 0 || cols == 0) return 0;
  if (cols % 4 != 0) return scan<Plus, false, false, true, TUNE_THREADS, TUNE_PACKS>(x, mask, out, rows, cols, stream);
  masked_rows<TUNE_THREADS, TUNE_PACKS>
      <<<unsigned(rows), TUNE_THREADS, 0, static_cast<cudaStream_t>(stream)>>>(x, mask, out, cols);
  return int(cudaGetLastError());
}
