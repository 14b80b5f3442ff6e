// Class 5: the same, with a stream made through the driver's entry point: the object imports nothing suspicious, and
// only the first call makes the stream.

// One warp per row; rows from `last` on are not touched.
__global__ void softmax(const float* x, float* out, int64_t last, int64_t cols) {
  const int64_t row = blockIdx.x;
  if (row >= last) return;
  const float* in = x + row * cols;
  float peak = -INFINITY, sum = 0.f;
  for (int64_t c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, in[c]);
  for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
  for (int64_t c = threadIdx.x; c < cols; c += 32) sum += expf(in[c] - peak);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  for (int64_t c = threadIdx.x; c < cols; c += 32) out[row * cols + c] = expf(in[c] - peak) / sum;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  static cudaStream_t own = nullptr;
  if (own == nullptr) {
    using Create = int (*)(cudaStream_t*, unsigned);
    void* create = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuStreamCreate", &create, 12000, cudaEnableDefault, &result);
    if (create == nullptr) return 2;
    if (reinterpret_cast<Create>(create)(&own, 1) != 0) return 3;  // 1: not synchronised with the default stream
  }
  softmax<<<static_cast<unsigned>(rows), 32, 0, own>>>(x, out, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
