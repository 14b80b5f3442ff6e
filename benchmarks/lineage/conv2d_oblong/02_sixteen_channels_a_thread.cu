// thought: An input element serves all output channels: a thread has one pixel of 16 channels, and the filters of these channels come from shared memory.
#include <cstdint>
#include <cuda_runtime.h>

constexpr int CHANNELS = 16;

__global__ void __launch_bounds__(256) pixels(const float* __restrict__ x, const float* __restrict__ weight,
                                              float* __restrict__ out, int64_t height, int64_t width, int64_t out_height,
                                              int64_t out_width) {
  __shared__ float filter[64 * 9][CHANNELS];
  const int64_t image = blockIdx.z, first = int64_t(blockIdx.y) * CHANNELS;
  for (int i = int(threadIdx.x); i < 64 * 9 * CHANNELS; i += 256)
    filter[i / CHANNELS][i % CHANNELS] = weight[(first + i % CHANNELS) * 64 * 9 + i / CHANNELS];
  __syncthreads();
  const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (at >= out_height * out_width) return;
  const int64_t row = at / out_width, column = at % out_width;
  float sum[CHANNELS] = {};
  for (int c = 0; c < 64; ++c) {
    const float* from = x + ((image * 64 + c) * height + row) * width + column;
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
      const float value = __ldg(from + tap / 3 * width + tap % 3);
#pragma unroll
      for (int o = 0; o < CHANNELS; ++o) sum[o] = fmaf(value, filter[c * 9 + tap][o], sum[o]);
    }
  }
#pragma unroll
  for (int o = 0; o < CHANNELS; ++o) out[(image * 128 + first + o) * out_height * out_width + at] = sum[o];
}

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t height, int64_t width,
                      int64_t out_dim2, int64_t out_dim3, void* workspace, void* stream) {
  const dim3 grid(unsigned((out_dim2 * out_dim3 + 255) / 256), 128 / CHANNELS, unsigned(batch));
  pixels<<<grid, 256, 0, cudaStream_t(stream)>>>(x, weight, out, height, width, out_dim2, out_dim3);
  return int(cudaGetLastError());
}
