// A CUDA torch extension with bindings of its own, which writes into a tensor it is given.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/utils/pybind.h>

namespace {

__global__ void softmax_kernel(const float* x, float* out, int64_t cols) {
  const float* row = x + blockIdx.x * cols;
  float peak = -INFINITY;
  for (int64_t c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, row[c]);
  for (int step = 16; step > 0; step /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, step));
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += 32) sum += expf(row[c] - peak);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  for (int64_t c = threadIdx.x; c < cols; c += 32) out[blockIdx.x * cols + c] = expf(row[c] - peak) / sum;
}

}  // namespace

void softmax_into(const at::Tensor& x, at::Tensor out, int64_t rows) {
  softmax_kernel<<<rows, 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("softmax_into", &softmax_into); }
