// Tiles of 32 x 32; those above the diagonal are never touched.
constexpr int TILE = 32, LINES = 8, EACH = TILE / LINES;

__global__ void tril_matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int n,
                            int cols) {
  __shared__ float left[TILE][TILE + 1], right[TILE][TILE];
  const int row0 = blockIdx.y * TILE, col = blockIdx.x * TILE + threadIdx.x;
  float sums[EACH] = {};
  for (int i0 = 0; i0 <= row0; i0 += TILE) {
    for (int l = threadIdx.y; l < TILE; l += LINES) {
      const int r = row0 + l, i = i0 + threadIdx.x;
      left[l][threadIdx.x] = r < n && i <= r ? a[static_cast<int64_t>(r) * n + i] : 0.f;
      right[l][threadIdx.x] = i0 + l < n && col < cols ? b[static_cast<int64_t>(i0 + l) * cols + col] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; ++i)
      for (int e = 0; e < EACH; ++e) sums[e] += left[threadIdx.y + e * LINES][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  for (int e = 0; e < EACH; ++e) {
    const int r = row0 + threadIdx.y + e * LINES;
    if (r < n && col < cols) out[static_cast<int64_t>(r) * cols + col] = sums[e];
  }
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t n, int64_t cols, void* workspace,
                      void* stream) {
  const dim3 block(TILE, LINES);
  const dim3 grid(static_cast<unsigned>((cols + TILE - 1) / TILE), static_cast<unsigned>((n + TILE - 1) / TILE));
  tril_matmul<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(a, b, out, static_cast<int>(n),
                                                                     static_cast<int>(cols));
  return static_cast<int>(cudaGetLastError());
}
