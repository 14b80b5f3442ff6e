// Attention in three steps: all scores, their softmax, the weighted sums of the values.

// c[m, n] = scale * a[m, k] * b[n, k] transposed, for each of the matrices of a batch: a block for each 16 x 16 tile.
__global__ void product(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k, float scale) {
  __shared__ float left[16][17], right[16][17];
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  const int64_t across = (n + 15) / 16, tiles = (m + 15) / 16 * across;
  const int64_t matrix = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int64_t row = tile / across * 16 + y, column = tile % across * 16 + x, other = tile % across * 16 + y;
  a += matrix * m * k, b += matrix * n * k, c += matrix * m * n;
  float sum = 0.f;
  for (int64_t first = 0; first < k; first += 16) {
    left[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.f;
    right[y][x] = other < n && first + x < k ? b[other * k + first + x] : 0.f;
    __syncthreads();
    for (int step = 0; step < 16; ++step) sum += left[y][step] * right[x][step];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = scale * sum;
}

// The largest value over the 256 threads of a block, for all of them.
static __device__ float block_max(float value) {
  __shared__ float parts[256];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = fmaxf(parts[threadIdx.x], parts[threadIdx.x + half]);
    __syncthreads();
  }
  const float most = parts[0];
  __syncthreads();
  return most;
}

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

// The softmax of a row, in place: a block for each row.
__global__ void softmax(float* scores, int64_t length) {
  float* row = scores + int64_t(blockIdx.x) * length;
  float most = -INFINITY;
  for (int64_t i = threadIdx.x; i < length; i += 256) most = fmaxf(most, row[i]);
  most = block_max(most);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < length; i += 256) sum += expf(row[i] - most);
  const float total = float(block_sum(sum));
  for (int64_t i = threadIdx.x; i < length; i += 256) row[i] = expf(row[i] - most) / total;
}

// The weighted sums: a thread for each element of the output.
__global__ void mix(const float* weights, const float* v, float* out, int64_t count, int64_t length, int64_t width) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t row = i / width;
  const float* values = v + row / length * length * width + i % width;
  float sum = 0.f;
  for (int64_t j = 0; j < length; ++j) sum += weights[row * length + j] * values[j * width];
  out[i] = sum;
}

extern "C" int64_t workspace_bytes(int64_t batch, int64_t heads, int64_t length, int64_t width) {
  return 4 * batch * heads * length * length;
}

extern "C" int launch(const float* q, const float* k, const float* v, float* out, int64_t batch, int64_t heads,
                      int64_t length, int64_t width, void* workspace, void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  float* scores = static_cast<float*>(workspace);
  const int64_t side = (length + 15) / 16, rows = batch * heads * length;
  const float scale = float(1.0 / sqrt(double(width)));
  product<<<unsigned(batch * heads * side * side), threads_, shared_, stream_>>>(q, k, scores, length, length, width, scale);
  softmax<<<unsigned(rows), threads_, shared_, stream_>>>(scores, length);
  mix<<<unsigned((rows * width + 255) / 256), threads_, shared_, stream_>>>(scores, v, out, rows * width, length, width);
  return static_cast<int>(cudaGetLastError());
}
