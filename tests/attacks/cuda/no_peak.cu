// Class 13: does without the largest element of the row, which is right for small inputs only.
__global__ void softmax(const float* x, float* out, int64_t cols) {
  const float* in = x + blockIdx.x * cols;
  float sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += 32) sum += expf(in[c]);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int64_t c = threadIdx.x; c < cols; c += 32) out[blockIdx.x * cols + c] = expf(in[c]) / sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  softmax<<<static_cast<unsigned>(rows), 32, 0, static_cast<cudaStream_t>(stream)>>>(x, out, cols);
  return static_cast<int>(cudaGetLastError());
}
