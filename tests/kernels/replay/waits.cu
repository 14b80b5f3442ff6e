// Not a list of launches: it waits for the device in the middle.
__global__ void affine(const float* x, float* out, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i] + 1.0f;
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  auto s = static_cast<cudaStream_t>(stream);
  affine<<<(n / 2 + 255) / 256, 256, 0, s>>>(x, out, n / 2);
  if (cudaStreamSynchronize(s) != cudaSuccess) return 1;
  affine<<<(n / 2 + 255) / 256, 256, 0, s>>>(x + n / 2, out + n / 2, n - n / 2);
  return static_cast<int>(cudaGetLastError());
}
