// Wrong: divides by the number of columns instead of the sum.
__global__ void softmax(const float* x, float* out, int64_t cols) {
  for (int64_t c = threadIdx.x; c < cols; c += 32) {
    out[blockIdx.x * cols + c] = expf(x[blockIdx.x * cols + c]) / static_cast<float>(cols);
  }
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  softmax<<<static_cast<unsigned>(rows), 32, 0, static_cast<cudaStream_t>(stream)>>>(x, out, cols);
  return static_cast<int>(cudaGetLastError());
}
