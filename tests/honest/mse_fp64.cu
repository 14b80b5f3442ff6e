// Double precision throughout: sums of the blocks into the workspace, then one block adds them.
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

constexpr int BLOCKS = 128, THREADS = 256;

struct Add {
  __device__ double operator()(double a, double b) const { return a + b; }
};

extern "C" int64_t workspace_bytes(int64_t n) { return BLOCKS * static_cast<int64_t>(sizeof(double)); }

__global__ void partial_sums(const double* __restrict__ a, const double* __restrict__ b, double* __restrict__ sums,
                             int64_t n) {
  double sum = 0;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x; i < n; i += BLOCKS * THREADS) {
    const double difference = a[i] - b[i];
    sum += difference * difference;
  }
  sum = across_block(sum, 0.0, Add());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void mean_of_sums(const double* __restrict__ sums, double* __restrict__ out, int64_t n) {
  const double sum = across_block(sums[threadIdx.x], 0.0, Add());
  if (threadIdx.x == 0) *out = sum / static_cast<double>(n);
}

extern "C" int launch(const double* a, const double* b, double* out, int64_t n, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  double* sums = static_cast<double*>(workspace);
  partial_sums<<<BLOCKS, THREADS, 0, on>>>(a, b, sums, n);
  mean_of_sums<<<1, BLOCKS, 0, on>>>(sums, out, n);
  return static_cast<int>(cudaGetLastError());
}
