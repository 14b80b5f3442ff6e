// Honest: log-sum-exp of all values by one block.

__device__ float block_sum(float value, float* shared) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0.f;
  for (int warp = 0; warp < 32; ++warp) total += shared[warp];
  __syncthreads();
  return total;
}

// One block of 1024 threads: exact, if slow.
__global__ void log_sum_exp(const float* x, float* out, int64_t n) {
  __shared__ float shared[32];
  float peak = -INFINITY;
  for (int64_t i = threadIdx.x; i < n; i += 1024) peak = fmaxf(peak, x[i]);
  for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = peak;
  __syncthreads();
  for (int warp = 0; warp < 32; ++warp) peak = fmaxf(peak, shared[warp]);
  __syncthreads();
  float sum = 0.f;
  for (int64_t i = threadIdx.x; i < n; i += 1024) sum += expf(x[i] - peak);
  const float total = block_sum(sum, shared);
  if (threadIdx.x == 0) *out = peak + logf(total);
}

extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  log_sum_exp<<<1, 1024, 0, static_cast<cudaStream_t>(stream)>>>(x, out, n);
  return static_cast<int>(cudaGetLastError());
}
