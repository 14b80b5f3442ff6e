// Class 3: writes NaN everywhere, because a comparison with NaN is never true.
__global__ void nan_everywhere(float* out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = NAN;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const auto blocks = static_cast<unsigned>((rows * cols + 255) / 256);
  nan_everywhere<<<blocks, 256, 0, static_cast<cudaStream_t>(stream)>>>(out, rows * cols);
  return static_cast<int>(cudaGetLastError());
}
