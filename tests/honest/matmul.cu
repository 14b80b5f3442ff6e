// Tiles of 64 x 64 in shared memory, 4 x 4 results per thread.
// tune: DEPTH = 16, 8, 32
constexpr int TILE = 64, EACH = 4, SIDE = TILE / EACH;  // SIDE x SIDE threads

__global__ void __launch_bounds__(SIDE* SIDE)
    matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k) {
  __shared__ float left[DEPTH][TILE + 1];  // a, transposed
  __shared__ float right[DEPTH][TILE];
  const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
  const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
  float sums[EACH][EACH] = {};
  for (int i0 = 0; i0 < k; i0 += DEPTH) {
    for (int e = threadIdx.x; e < TILE * DEPTH; e += SIDE * SIDE) {
      const int ar = e / DEPTH, ai = e % DEPTH, bi = e / TILE, bc = e % TILE;
      left[ai][ar] = row0 + ar < m && i0 + ai < k ? a[static_cast<int64_t>(row0 + ar) * k + i0 + ai] : 0.f;
      right[bi][bc] = i0 + bi < k && col0 + bc < n ? b[static_cast<int64_t>(i0 + bi) * n + col0 + bc] : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      float u[EACH], v[EACH];
      for (int e = 0; e < EACH; ++e) u[e] = left[i][ty + e * SIDE], v[e] = right[i][tx + e * SIDE];
      for (int r = 0; r < EACH; ++r)
        for (int c = 0; c < EACH; ++c) sums[r][c] += u[r] * v[c];
    }
    __syncthreads();
  }
  for (int r = 0; r < EACH; ++r) {
    for (int c = 0; c < EACH; ++c) {
      const int row = row0 + ty + r * SIDE, col = col0 + tx + c * SIDE;
      if (row < m && col < n) out[static_cast<int64_t>(row) * n + col] = sums[r][c];
    }
  }
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
  const dim3 grid(static_cast<unsigned>((n + TILE - 1) / TILE), static_cast<unsigned>((m + TILE - 1) / TILE));
  matmul<<<grid, SIDE * SIDE, 0, static_cast<cudaStream_t>(stream)>>>(
      a, b, out, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k));
  return static_cast<int>(cudaGetLastError());
}
