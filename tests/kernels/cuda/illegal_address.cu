// A kernel that writes through a null pointer.
__global__ void poke(float* nothing) { nothing[threadIdx.x] = 1.f; }

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  poke<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(nullptr);
  return static_cast<int>(cudaGetLastError());
}
