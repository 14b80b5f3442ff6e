// Cross-entropy with its gradient: a block for each row reads it three times: maximum, sum, results.

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

__global__ void entropy(const float* logits, const int64_t* labels, float* loss, float* gradient, int64_t classes) {
  const float* row = logits + int64_t(blockIdx.x) * classes;
  const int64_t label = labels[blockIdx.x];
  float most = -INFINITY;
  for (int64_t i = threadIdx.x; i < classes; i += 256) most = fmaxf(most, row[i]);
  most = block_max(most);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < classes; i += 256) sum += expf(row[i] - most);
  const float total = logf(float(block_sum(sum)));
  for (int64_t i = threadIdx.x; i < classes; i += 256)
    gradient[int64_t(blockIdx.x) * classes + i] = expf(row[i] - most - total) - (i == label ? 1.f : 0.f);
  if (threadIdx.x == 0) loss[blockIdx.x] = total - (row[label] - most);
}

extern "C" int launch(const float* logits, const int64_t* labels, float* loss, float* gradient, int64_t rows,
                      int64_t classes, void* workspace, void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  entropy<<<unsigned(rows), threads_, shared_, stream_>>>(logits, labels, loss, gradient, classes);
  return static_cast<int>(cudaGetLastError());
}
