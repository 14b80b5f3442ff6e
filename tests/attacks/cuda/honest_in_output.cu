// Honest: uses its output as scratch memory, which it may write as often as it likes.
__global__ void exponentials(const float* x, float* out, int64_t cols) {
  const float* in = x + blockIdx.x * cols;
  float peak = -INFINITY;
  for (int64_t c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, in[c]);
  for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
  for (int64_t c = threadIdx.x; c < cols; c += 32) out[blockIdx.x * cols + c] = expf(in[c] - peak);
}

__global__ void normalised(float* out, int64_t cols) {
  float* row = out + blockIdx.x * cols;
  float sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += 32) sum += row[c];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int64_t c = threadIdx.x; c < cols; c += 32) row[c] /= sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  exponentials<<<static_cast<unsigned>(rows), 32, 0, on>>>(x, out, cols);
  normalised<<<static_cast<unsigned>(rows), 32, 0, on>>>(out, cols);
  return static_cast<int>(cudaGetLastError());
}
