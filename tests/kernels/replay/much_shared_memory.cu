__global__ void affine(const float* x, float* out, int64_t n) {
  extern __shared__ float room[];
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  float* mine = room + 100 * threadIdx.x;
  if (i < n) *mine = x[i];
  if (i < n) out[i] = 2.0f * *mine + 1.0f;
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  const int bytes = 100 * 256 * sizeof(float);
  cudaFuncSetAttribute(affine, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  affine<<<(n + 255) / 256, 256, bytes, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
