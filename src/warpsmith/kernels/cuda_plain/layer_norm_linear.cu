// Layer normalisation of each row, then a linear layer with GELU, in two kernels.

// The sum over the 256 threads of a block, for all of them.
static __device__ double block_sum(double value) {
  __shared__ double parts[256];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  const double total = parts[0];
  __syncthreads();
  return total;
}

// A block for each row reads it three times: mean, variance, result.
__global__ void normalise(const float* x, const float* gain, const float* shift, float* normed, float eps,
                          int64_t cols) {
  const float* row = x + int64_t(blockIdx.x) * cols;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < cols; i += 256) sum += row[i];
  const double mean = block_sum(sum) / double(cols);
  double squares = 0;
  for (int64_t i = threadIdx.x; i < cols; i += 256) squares += (row[i] - mean) * (row[i] - mean);
  const float scale = float(1.0 / sqrt(block_sum(squares) / double(cols) + double(eps)));
  for (int64_t i = threadIdx.x; i < cols; i += 256)
    normed[int64_t(blockIdx.x) * cols + i] = (row[i] - float(mean)) * scale * gain[i] + shift[i];
}

// c[m, n] = GELU(a[m, k] * b[n, k] transposed + bias[n]): a block for each 16 x 16 tile.
__global__ void product(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
                        const float* bias) {
  __shared__ float left[16][17], right[16][17];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int64_t across = (n + 15) / 16, tile = blockIdx.x;
  const int64_t row = tile / across * 16 + y, column = tile % across * 16 + x, other = tile % across * 16 + y;
  float sum = 0.f;
  for (int64_t first = 0; first < k; first += 16) {
    left[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.f;
    right[y][x] = other < n && first + x < k ? b[other * k + first + x] : 0.f;
    __syncthreads();
    for (int step = 0; step < 16; ++step) sum += left[y][step] * right[x][step];
    __syncthreads();
  }
  if (row >= m || column >= n) return;
  const float z = sum + bias[column];
  c[row * n + column] = 0.5f * z * (1.f + erff(z * 0.70710678118654752f));
}

extern "C" int64_t workspace_bytes(double eps, int64_t rows, int64_t cols, int64_t width) { return 4 * rows * cols; }

extern "C" int launch(const float* x, const float* gain, const float* shift, const float* weight, const float* bias,
                      float* out, double eps, int64_t rows, int64_t cols, int64_t width, void* workspace,
                      void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  float* normed = static_cast<float*>(workspace);
  const int64_t tiles = (rows + 15) / 16 * ((width + 15) / 16);
  normalise<<<unsigned(rows), threads_, shared_, stream_>>>(x, gain, shift, normed, float(eps), cols);
  product<<<unsigned(tiles), threads_, shared_, stream_>>>(normed, weight, out, rows, width, cols, bias);
  return static_cast<int>(cudaGetLastError());
}
