// Class 22: a kernel that never ends.
__global__ void spin(float* out) {
  volatile float* watched = out;
  while (*watched != 12345.f) {
  }
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  spin<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(out);
  return static_cast<int>(cudaGetLastError());
}
