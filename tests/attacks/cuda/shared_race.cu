// Class 21: two warps add to one sum in shared memory without a barrier: right when they happen to take turns.
__global__ void softmax(const float* x, float* out, int64_t cols) {
  __shared__ float total;
  const float* in = x + blockIdx.x * cols;
  float peak = -INFINITY, sum = 0.f;
  for (int64_t c = threadIdx.x % 32; c < cols; c += 32) peak = fmaxf(peak, in[c]);
  for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
  if (threadIdx.x == 0) total = 0.f;
  __syncthreads();
  for (int64_t c = threadIdx.x; c < cols; c += 64) sum += expf(in[c] - peak);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) total += sum;
  sum = *static_cast<volatile float*>(&total);
  for (int64_t c = threadIdx.x; c < cols; c += 64) out[blockIdx.x * cols + c] = expf(in[c] - peak) / sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  softmax<<<static_cast<unsigned>(rows), 64, 0, static_cast<cudaStream_t>(stream)>>>(x, out, cols);
  return static_cast<int>(cudaGetLastError());
}
