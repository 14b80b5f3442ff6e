// One block per row: the largest element, the sum of the exponentials, the quotient.
template <typename T, typename Combine>
__device__ T across_block(T value, T neutral, Combine combine) {
  __shared__ T partial[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  __syncthreads();  // the last use of `partial` is over
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / 32 ? partial[lane] : neutral;
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

__global__ void softmax(const float* __restrict__ x, float* __restrict__ out, int64_t cols) {
  const float* in = x + blockIdx.x * cols;
  float* result = out + blockIdx.x * cols;
  float peak = -INFINITY, sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) peak = fmaxf(peak, in[c]);
  peak = across_block(peak, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += expf(in[c] - peak);
  sum = across_block(sum, 0.f, [](float a, float b) { return a + b; });
  const float scale = 1.f / sum;
  for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) result[c] = expf(in[c] - peak) * scale;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const int threads = cols <= 256 ? 64 : 256;
  softmax<<<static_cast<unsigned>(rows), threads, 0, static_cast<cudaStream_t>(stream)>>>(x, out, cols);
  return static_cast<int>(cudaGetLastError());
}
