// One warp per row, two passes; the second one finds the row in the cache.
__global__ void peak_mask(const float* __restrict__ x, bool* __restrict__ out, int64_t rows, int64_t cols) {
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.y) + threadIdx.y;
  if (row >= rows) return;  // the whole warp
  float peak = -INFINITY;
  for (int64_t c = threadIdx.x; c < cols; c += 32) peak = fmaxf(peak, x[row * cols + c]);
  for (int offset = 16; offset > 0; offset /= 2) peak = fmaxf(peak, __shfl_xor_sync(~0u, peak, offset));
  for (int64_t c = threadIdx.x; c < cols; c += 32) out[row * cols + c] = x[row * cols + c] == peak;
}

extern "C" int launch(const float* x, bool* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const dim3 block(32, 4);
  peak_mask<<<static_cast<unsigned>((rows + 3) / 4), block, 0, static_cast<cudaStream_t>(stream)>>>(x, out, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
