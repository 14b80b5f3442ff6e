// As many blocks as fit on the device at once, each walking through the data in strides of the whole grid.
__global__ void gelu(const float* __restrict__ x, float* __restrict__ out, int64_t n) {
  const int64_t stride = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += stride) {
    const float v = x[i];
    out[i] = 0.5f * v * (1.f + tanhf(0.7978845608f * (v + 0.044715f * v * v * v)));
  }
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  int blocks = 0, threads = 0;
  const cudaError_t asked = cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, gelu);
  if (asked != cudaSuccess) return static_cast<int>(asked);
  const int64_t n = rows * cols;
  const int64_t needed = std::min<int64_t>(blocks, (n + threads - 1) / threads);
  gelu<<<static_cast<unsigned>(needed), threads, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
