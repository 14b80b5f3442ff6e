// Planted: small blocks that each take nearly half of an SM's shared memory, and one load in flight per thread.
__global__ void hoards_shared(const float* x, float* out, int64_t n) {
  extern __shared__ float room[];
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    room[threadIdx.x] = x[i];
    __syncwarp();
    out[i] = 2.0f * room[threadIdx.x];
  }
}
int launch(const float* x, float* out, int64_t n, void*, void* stream) {
  const int bytes = 96 * 1024;
  cudaFuncSetAttribute(hoards_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  hoards_shared<<<4096, 64, bytes, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
