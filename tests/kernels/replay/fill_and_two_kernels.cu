__global__ void add_twice(const float* x, float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] += 2.0f * x[i];
}
__global__ void add_one(float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] += 1.0f;
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  auto s = static_cast<cudaStream_t>(stream);
  cudaMemsetAsync(out, 0, n * sizeof(float), s);
  add_twice<<<(n + 255) / 256, 256, 0, s>>>(x, out, n);
  add_one<<<(n + 255) / 256, 256, 0, s>>>(out, n);
  return static_cast<int>(cudaGetLastError());
}
