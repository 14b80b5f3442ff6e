// thought: Neighbouring threads must read neighbouring elements: a block per row, sums through shared memory.
#include <cstdint>
#include <cuda_runtime.h>

template <bool MOST>
__device__ float over_block(float value) {
  __shared__ float of_warps[32];
  for (int mask = 16; mask; mask /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, mask);
    value = MOST ? fmaxf(value, other) : value + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[0];
  for (int w = 1; w < int(blockDim.x) / 32; ++w) value = MOST ? fmaxf(value, of_warps[w]) : value + of_warps[w];
  return value;
}

__global__ void rows_by_blocks(const float* x, float* out, int64_t cols) {
  const float* from = x + blockIdx.x * cols;
  float most = -INFINITY, sum = 0.f;
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) most = fmaxf(most, from[i]);
  most = over_block<true>(most);
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) sum += expf(from[i] - most);
  sum = over_block<false>(sum);
  for (int64_t i = threadIdx.x; i < cols; i += blockDim.x) out[blockIdx.x * cols + i] = expf(from[i] - most) / sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  rows_by_blocks<<<unsigned(rows), 512, 0, cudaStream_t(stream)>>>(x, out, cols);
  return int(cudaGetLastError());
}
