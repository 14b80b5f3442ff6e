__constant__ float factors[2];
__global__ void affine(const float* x, float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = factors[0] * x[i] + factors[1];
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  static const float values[2] = {2.0f, 1.0f};
  auto s = static_cast<cudaStream_t>(stream);
  cudaMemcpyToSymbolAsync(factors, values, sizeof values, 0, cudaMemcpyHostToDevice, s);
  affine<<<(n + 255) / 256, 256, 0, s>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
