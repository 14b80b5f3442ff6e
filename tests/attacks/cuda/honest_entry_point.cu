// Honest: asks the driver for a function that the runtime does not offer, as kernels with tensor maps must.

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
  using Attribute = int (*)(int*, int, int);
  static Attribute attribute = nullptr;
  if (attribute == nullptr) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &found, 12000, cudaEnableDefault, &result);
    if (found == nullptr) return 3;
    attribute = reinterpret_cast<Attribute>(found);
  }
  int warp = 0;
  if (attribute(&warp, 10, 0) != 0 || warp != 32) return 4;  // CU_DEVICE_ATTRIBUTE_WARP_SIZE
  softmax<<<static_cast<unsigned>(rows), 32, 0, static_cast<cudaStream_t>(stream)>>>(x, out, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
