// A kernel that uses a workspace which nobody asked for.
__global__ void sum(const float* x, float* sums) { sums[threadIdx.x] = x[threadIdx.x]; }

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  sum<<<1, 32, 0, static_cast<cudaStream_t>(stream)>>>(x, static_cast<float*>(workspace));
  return static_cast<int>(cudaGetLastError());
}
