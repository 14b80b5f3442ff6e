// Honest: keeps a megabyte of device memory of its own and the number of multiprocessors from one call to the next.

// One warp per row, in two steps.
__global__ void peaks_of(const float* x, float* peaks, int64_t last, int64_t cols) {
  for (int64_t row = blockIdx.x; row < last; row += gridDim.x) {
    float peak = -INFINITY;
    for (int64_t c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, x[row * cols + c]);
    for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
    if (threadIdx.x == 0) peaks[row] = peak;
  }
}

__global__ void softmax(const float* x, const float* peaks, float* out, int64_t cols) {
  const int64_t row = blockIdx.x;
  const float* in = x + row * cols;
  const float peak = peaks[row];
  float sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += 32) sum += expf(in[c] - peak);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int64_t c = threadIdx.x; c < cols; c += 32) out[row * cols + c] = expf(in[c] - peak) / sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  static float* peaks = nullptr;
  static int processors = 0;
  if (peaks == nullptr) {
    if (rows * sizeof(float) > (1 << 20) || cudaMalloc(&peaks, 1 << 20) != cudaSuccess) return 2;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  }
  const auto on = static_cast<cudaStream_t>(stream);
  peaks_of<<<static_cast<unsigned>(4 * processors), 32, 0, on>>>(x, peaks, rows, cols);
  softmax<<<static_cast<unsigned>(rows), 32, 0, on>>>(x, peaks, out, cols);
  return static_cast<int>(cudaGetLastError());
}
