// thought: Every element of a factor is read n times: tiles of 128 x 128 in shared memory, 8 x 8 results in the registers of a thread.
#include <cstdint>
#include <cuda_runtime.h>

constexpr int TILE = 128, TERMS = 8;

__global__ void __launch_bounds__(256) tiles(const float* a, const float* b, float* out, int n) {
  __shared__ float as[TERMS][TILE + 4], bs[TERMS][TILE];
  const int thread = threadIdx.x, top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  const int row = thread / 16 * 8, column = thread % 16 * 8;
  float sums[8][8] = {};
  for (int from = 0; from < n; from += TERMS) {
    for (int i = thread; i < TILE * TERMS; i += 256) {
      const int r = i / TERMS, t = i % TERMS;
      as[t][r] = top + r < n && from + t < n ? a[int64_t(top + r) * n + from + t] : 0.f;
      const int c = i % TILE, s = i / TILE;
      bs[s][c] = left + c < n && from + s < n ? b[int64_t(from + s) * n + left + c] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int t = 0; t < TERMS; ++t) {
      float u[8], v[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) u[i] = as[t][row + i], v[i] = bs[t][column + i];
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(u[i], v[j], sums[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j)
      if (top + row + i < n && left + column + j < n) out[int64_t(top + row + i) * n + left + column + j] = sums[i][j];
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t n, void* workspace, void* stream) {
  const dim3 grid(unsigned((n + TILE - 1) / TILE), unsigned((n + TILE - 1) / TILE));
  tiles<<<grid, 256, 0, cudaStream_t(stream)>>>(a, b, out, int(n));
  return int(cudaGetLastError());
}
