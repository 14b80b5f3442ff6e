__global__ void affine(const float* x, float* out, int64_t n, float a, float b) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + b;
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  affine<<<(n + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n, 2.0f, 1.0f);
  return static_cast<int>(cudaGetLastError());
}
