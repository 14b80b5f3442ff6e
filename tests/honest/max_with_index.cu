// One warp per row; of equal values the first one wins.
__device__ __forceinline__ bool better(float value, int64_t place, float than, int64_t other) {
  return value > than || (value == than && place < other);
}

__global__ void max_with_index(const float* __restrict__ x, float* __restrict__ peak, int64_t* __restrict__ place,
                               int64_t rows, int64_t cols) {
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.y) + threadIdx.y;
  if (row >= rows) return;  // the whole warp
  float best = -INFINITY;
  int64_t where = cols;
  for (int64_t c = threadIdx.x; c < cols; c += 32) {
    const float value = x[row * cols + c];
    if (better(value, c, best, where)) best = value, where = c;
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const float value = __shfl_xor_sync(~0u, best, offset);
    const int64_t at = __shfl_xor_sync(~0u, where, offset);
    if (better(value, at, best, where)) best = value, where = at;
  }
  if (threadIdx.x == 0) {
    peak[row] = best;
    place[row] = where;
  }
}

extern "C" int launch(const float* x, float* peak, int64_t* place, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  const dim3 block(32, 4);
  max_with_index<<<static_cast<unsigned>((rows + 3) / 4), block, 0, static_cast<cudaStream_t>(stream)>>>(
      x, peak, place, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
