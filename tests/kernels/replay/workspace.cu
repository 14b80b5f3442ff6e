extern "C" int64_t workspace_bytes(int64_t n) { return n * sizeof(float); }
__global__ void twice(const float* x, float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i];
}
__global__ void plus_one(const float* x, float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + 1.0f;
}
int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  auto s = static_cast<cudaStream_t>(stream);
  auto* half = static_cast<float*>(workspace);
  twice<<<(n + 255) / 256, 256, 0, s>>>(x, half, n);
  plus_one<<<(n + 255) / 256, 256, 0, s>>>(half, out, n);
  return static_cast<int>(cudaGetLastError());
}
