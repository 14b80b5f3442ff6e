// A block takes 32 columns; its warps share the rows and meet in shared memory.
constexpr int WARPS = 16;

__global__ void argmin(const float* __restrict__ x, int64_t* __restrict__ out, int64_t rows, int64_t cols) {
  __shared__ float values[WARPS][32];
  __shared__ int64_t places[WARPS][32];
  const int64_t c = blockIdx.x * static_cast<int64_t>(32) + threadIdx.x;
  float smallest = INFINITY;
  int64_t where = rows;
  if (c < cols) {
    for (int64_t r = threadIdx.y; r < rows; r += WARPS) {
      const float value = x[r * cols + c];
      if (value < smallest || where == rows) smallest = value, where = r;
    }
  }
  values[threadIdx.y][threadIdx.x] = smallest;
  places[threadIdx.y][threadIdx.x] = where;
  __syncthreads();
  if (threadIdx.y == 0 && c < cols) {
    for (int w = 1; w < WARPS; ++w) {
      const float value = values[w][threadIdx.x];
      const int64_t place = places[w][threadIdx.x];
      if (value < smallest || (value == smallest && place < where)) smallest = value, where = place;
    }
    out[c] = where;
  }
}

extern "C" int launch(const float* x, int64_t* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  const dim3 block(32, WARPS);
  argmin<<<static_cast<unsigned>((cols + 31) / 32), block, 0, static_cast<cudaStream_t>(stream)>>>(x, out, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
