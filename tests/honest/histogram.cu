// Every block counts in shared memory and adds its counts to the result, which starts at zero.
constexpr int BINS = task::out_dim0, THREADS = 256;

__global__ void __launch_bounds__(THREADS)
    histogram(const int32_t* __restrict__ values, int32_t* __restrict__ out, int64_t n) {
  __shared__ int32_t counts[BINS];
  for (int b = threadIdx.x; b < BINS; b += THREADS) counts[b] = 0;
  __syncthreads();
  const int64_t stride = gridDim.x * static_cast<int64_t>(THREADS);
  for (int64_t i = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x; i < n; i += stride) {
    atomicAdd(&counts[values[i]], 1);
  }
  __syncthreads();
  for (int b = threadIdx.x; b < BINS; b += THREADS)
    if (counts[b] != 0) atomicAdd(out + b, counts[b]);
}

extern "C" int launch(const int32_t* values, int32_t* out, int64_t n, void* workspace, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const cudaError_t cleared = cudaMemsetAsync(out, 0, BINS * sizeof(int32_t), on);
  if (cleared != cudaSuccess) return static_cast<int>(cleared);
  const int64_t blocks = std::clamp<int64_t>((n + 8 * THREADS - 1) / (8 * THREADS), 1, 264);
  histogram<<<static_cast<unsigned>(blocks), THREADS, 0, on>>>(values, out, n);
  return static_cast<int>(cudaGetLastError());
}
