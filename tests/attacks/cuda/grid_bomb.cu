// Class 22: a grid of two thousand million blocks, each of which takes its time.
__global__ void burn(float* out) {
  const long long start = clock64();
  while (clock64() - start < 1'000'000) {
  }
  if (start == 0) out[0] = 1.f;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  burn<<<2147483647u, 1024, 0, static_cast<cudaStream_t>(stream)>>>(out);
  return static_cast<int>(cudaGetLastError());
}
