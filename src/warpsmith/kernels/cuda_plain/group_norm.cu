// Group normalisation: a block for each group of channels of an image reads it three times: mean, variance, result.

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

__global__ void normalise(const float* x, const float* weight, const float* bias, float* out, float eps,
                          int64_t channels, int64_t groups, int64_t plane) {
  const int64_t each = channels / groups, count = each * plane, first = int64_t(blockIdx.x) * count;
  const int64_t channel = blockIdx.x % groups * each;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += 256) sum += x[first + i];
  const double mean = block_sum(sum) / double(count);
  double squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += 256) squares += (x[first + i] - mean) * (x[first + i] - mean);
  const float scale = float(1.0 / sqrt(block_sum(squares) / double(count) + double(eps)));
  for (int64_t i = threadIdx.x; i < count; i += 256) {
    const int64_t c = channel + i / plane;
    const float y = (x[first + i] - float(mean)) * scale * weight[c] + bias[c];
    out[first + i] = y;
  }
}

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t height, int64_t width, void* workspace, void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  normalise<<<unsigned(batch * groups), threads_, shared_, stream_>>>(x, weight, bias, out, float(eps), channels, groups, height * width);
  return static_cast<int>(cudaGetLastError());
}
