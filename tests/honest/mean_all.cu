// Sums of the blocks in double precision into the workspace, then one block adds them: most terms cancel.
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

constexpr int BLOCKS = 256;

struct Add {
  __device__ double operator()(double a, double b) const { return a + b; }
};

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) { return BLOCKS * static_cast<int64_t>(sizeof(double)); }

__global__ void partial_sums(const float* __restrict__ x, double* __restrict__ sums, int64_t n) {
  double sum = 0;
  const int64_t stride = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += stride) sum += x[i];
  sum = across_block(sum, 0.0, Add());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void mean_of_sums(const double* __restrict__ sums, float* __restrict__ out, int64_t n) {
  const double sum = across_block(sums[threadIdx.x], 0.0, Add());
  if (threadIdx.x == 0) *out = static_cast<float>(sum / static_cast<double>(n));
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  double* sums = static_cast<double*>(workspace);
  partial_sums<<<BLOCKS, 256, 0, on>>>(x, sums, rows * cols);
  mean_of_sums<<<1, BLOCKS, 0, on>>>(sums, out, rows * cols);
  return static_cast<int>(cudaGetLastError());
}
