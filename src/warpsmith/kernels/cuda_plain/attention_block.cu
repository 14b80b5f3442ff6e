// Causal attention with its projections, step by step: q, k and v; scores; softmax; weighted sums; last projection.

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

// The softmax of a row, in place: a block for each row. A row sees the columns up to its own; the others become zero.
__global__ void softmax(float* scores, int64_t length) {
  float* row = scores + int64_t(blockIdx.x) * length;
  const int64_t seen = blockIdx.x % length + 1;
  float most = -INFINITY;
  for (int64_t i = threadIdx.x; i < seen; i += 256) most = fmaxf(most, row[i]);
  most = block_max(most);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < seen; i += 256) sum += expf(row[i] - most);
  const float total = float(block_sum(sum));
  for (int64_t i = threadIdx.x; i < length; i += 256) row[i] = i < seen ? expf(row[i] - most) / total : 0.f;
}

// Scores of [batch, heads, length, length] from q and k in [batch, length, 3, heads, width]: a thread for each.
__global__ void score(const float* qkv, float* scores, int64_t count, int64_t heads, int64_t length, int64_t width) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t key = i % length, query = i / length % length, head = i / (length * length) % heads;
  const int64_t image = i / (length * length * heads), step = 3 * heads * width;
  const float* q = qkv + (image * length + query) * step + head * width;
  const float* k = qkv + (image * length + key) * step + (heads + head) * width;
  float sum = 0.f;
  for (int64_t d = 0; key <= query && d < width; ++d) sum += q[d] * k[d];
  scores[i] = sum / sqrtf(float(width));
}

// The weighted sums as [batch, length, heads, width]: a thread for each element.
__global__ void mix_values(const float* scores, const float* qkv, float* mixed, int64_t count, int64_t heads,
                           int64_t length, int64_t width) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int64_t d = i % width, head = i / width % heads, query = i / (width * heads) % length;
  const int64_t image = i / (width * heads * length), step = 3 * heads * width;
  const float* weights = scores + ((image * heads + head) * length + query) * length;
  const float* v = qkv + image * length * step + (2 * heads + head) * width + d;
  float sum = 0.f;
  for (int64_t j = 0; j <= query; ++j) sum += weights[j] * v[j * step];
  mixed[i] = sum;
}

extern "C" int64_t workspace_bytes(int64_t heads, int64_t batch, int64_t length) {
  return 4 * batch * length * (768 + heads * length + 256);
}

extern "C" int launch(const float* x, const float* mix, const float* out_mix, float* out, int64_t heads, int64_t batch,
                      int64_t length, void* workspace, void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  const int64_t rows = batch * length, width = 256 / heads, count = batch * heads * length * length;
  float* qkv = static_cast<float*>(workspace);
  float* scores = qkv + rows * 768;
  float* mixed = scores + count;
  product<<<unsigned((rows + 15) / 16 * 48), threads_, shared_, stream_>>>(x, mix, qkv, rows, 768, 256, 1.f);
  score<<<unsigned((count + 255) / 256), threads_, shared_, stream_>>>(qkv, scores, count, heads, length, width);
  softmax<<<unsigned(batch * heads * length), threads_, shared_, stream_>>>(scores, length);
  mix_values<<<unsigned(rows), threads_, shared_, stream_>>>(scores, qkv, mixed, rows * 256, heads, length, width);
  product<<<unsigned((rows + 15) / 16 * 16), threads_, shared_, stream_>>>(mixed, out_mix, out, rows, 256, 256, 1.f);
  return static_cast<int>(cudaGetLastError());
}
