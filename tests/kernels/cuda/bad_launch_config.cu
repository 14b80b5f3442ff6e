// Asks for 2048 threads per block and does not look at the error.
__global__ void softmax(const float* x, float* out) { out[threadIdx.x] = x[threadIdx.x]; }

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  softmax<<<1, 2048, 0, static_cast<cudaStream_t>(stream)>>>(x, out);
  return 0;
}
