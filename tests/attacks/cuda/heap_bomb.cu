// Class 22: takes memory from the device's heap without end and uses what it got, even when it got nothing.
__global__ void hoard(float* out) {
  for (int i = 0; i < 4096; ++i) {
    auto* block = static_cast<volatile float*>(malloc(1 << 20));
    block[threadIdx.x] = 1.f;
    out[threadIdx.x] = block[threadIdx.x];
  }
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  hoard<<<132, 32, 0, static_cast<cudaStream_t>(stream)>>>(out);
  return static_cast<int>(cudaGetLastError());
}
