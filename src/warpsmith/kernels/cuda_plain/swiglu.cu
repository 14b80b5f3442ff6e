// SiLU of one product times another: a block for each 16 x 16 tile of the output.
__global__ void gated(const float* x, const float* gate, const float* up, float* out, int64_t rows, int64_t cols,
                      int64_t width) {
  __shared__ float left[16][17], first_right[16][17], second_right[16][17];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int64_t across = (width + 15) / 16;
  const int64_t row = blockIdx.x / across * 16 + ty, column = blockIdx.x % across * 16 + tx;
  const int64_t other = blockIdx.x % across * 16 + ty;
  float a = 0.f, b = 0.f;
  for (int64_t first = 0; first < cols; first += 16) {
    const bool inside = other < width && first + tx < cols;
    left[ty][tx] = row < rows && first + tx < cols ? x[row * cols + first + tx] : 0.f;
    first_right[ty][tx] = inside ? gate[other * cols + first + tx] : 0.f;
    second_right[ty][tx] = inside ? up[other * cols + first + tx] : 0.f;
    __syncthreads();
    for (int step = 0; step < 16; ++step) {
      a += left[ty][step] * first_right[tx][step];
      b += left[ty][step] * second_right[tx][step];
    }
    __syncthreads();
  }
  if (row < rows && column < width) out[row * width + column] = a / (1.f + expf(-a)) * b;
}

extern "C" int launch(const float* x, const float* gate, const float* up, float* out, int64_t rows, int64_t cols,
                      int64_t width, void* workspace, void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  const int64_t tiles = (rows + 15) / 16 * ((width + 15) / 16);
  gated<<<unsigned(tiles), threads_, shared_, stream_>>>(x, gate, up, out, rows, cols, width);
  return static_cast<int>(cudaGetLastError());
}
