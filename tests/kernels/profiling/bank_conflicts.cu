// Planted: a tile without padding, read by columns: 32 lanes in one bank.
__global__ void tile_transpose(const float* x, float* out, int64_t rows, int64_t cols) {
  __shared__ float tile[32][32];
  const int64_t col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  if (row < rows && col < cols) tile[threadIdx.y][threadIdx.x] = x[row * cols + col];
  __syncthreads();
  const int64_t to_col = blockIdx.y * 32 + threadIdx.x, to_row = blockIdx.x * 32 + threadIdx.y;
  if (to_row < cols && to_col < rows) out[to_row * rows + to_col] = tile[threadIdx.x][threadIdx.y];
}
int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void* stream) {
  const dim3 grid((cols + 31) / 32, (rows + 31) / 32), block(32, 32);
  tile_transpose<<<grid, block, 0, static_cast<cudaStream_t>(stream)>>>(x, out, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
