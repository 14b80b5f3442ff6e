"""ModelNew with an inline CUDA extension, as KernelBench solutions are written."""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void softmax_kernel(const float* x, float* out, int64_t cols) {
  __shared__ float shared[256];
  const float* row = x + blockIdx.x * cols;
  float peak = -INFINITY;
  for (int64_t c = threadIdx.x; c < cols; c += 256) peak = fmaxf(peak, row[c]);
  shared[threadIdx.x] = peak;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + step]);
    __syncthreads();
  }
  peak = shared[0];
  __syncthreads();
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < cols; c += 256) sum += expf(row[c] - peak);
  shared[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
    __syncthreads();
  }
  const float scale = 1.0f / shared[0];
  for (int64_t c = threadIdx.x; c < cols; c += 256) out[blockIdx.x * cols + c] = expf(row[c] - peak) * scale;
}

torch::Tensor softmax(torch::Tensor x) {
  auto out = torch::empty_like(x);
  softmax_kernel<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
  return out;
}
"""

built = load_inline("inline_cuda_softmax", "torch::Tensor softmax(torch::Tensor x);", CUDA, functions=["softmax"])


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = built.softmax(x)
        return result
