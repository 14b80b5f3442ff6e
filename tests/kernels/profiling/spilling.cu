// Planted: 128 values alive at once in 32 registers. The pointers may overlap, so that nothing can be loaded twice.
constexpr int kValues = 128;
__global__ void __launch_bounds__(1024, 2) many_values(const float* x, float* out, int64_t n) {
  const int64_t lanes = n / kValues, i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= lanes) return;
  float v[kValues];
#pragma unroll
  for (int k = 0; k < kValues; ++k) v[k] = x[i + k * lanes];
#pragma unroll
  for (int k = 0; k < kValues; ++k) out[i + k * lanes] = 2.0f * v[k] + 0.0f * v[kValues - 1 - k];
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  const int64_t lanes = n / kValues;
  many_values<<<(lanes + 1023) / 1024, 1024, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
