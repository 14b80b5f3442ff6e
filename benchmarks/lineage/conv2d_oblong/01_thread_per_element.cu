// thought: The plain translation: one thread for each element of the result, 64 channels of nine taps each from memory.
#include <cstdint>
#include <cuda_runtime.h>

__global__ void elements(const float* x, const float* weight, float* out, int64_t count, int64_t height, int64_t width,
                         int64_t out_height, int64_t out_width) {
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const int64_t column = at % out_width, row = at / out_width % out_height, channel = at / (out_width * out_height) % 128;
  const int64_t image = at / (out_width * out_height * 128);
  float sum = 0.f;
  for (int c = 0; c < 64; ++c)
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j)
        sum += x[((image * 64 + c) * height + row + i) * width + column + j] * weight[((channel * 64 + c) * 3 + i) * 3 + j];
  out[at] = sum;
}

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t height, int64_t width,
                      int64_t out_dim2, int64_t out_dim3, void* workspace, void* stream) {
  const int64_t count = batch * 128 * out_dim2 * out_dim3;
  elements<<<unsigned((count + 255) / 256), 256, 0, cudaStream_t(stream)>>>(x, weight, out, count, height, width, out_dim2,
                                                                           out_dim3);
  return int(cudaGetLastError());
}
