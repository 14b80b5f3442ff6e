// Each row as 8-bit numbers times a power of two, and back: a block for each row.

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

__global__ void quantise(const float* x, int8_t* codes, float* y, int64_t cols) {
  const int64_t first = int64_t(blockIdx.x) * cols;
  float most = 0.f;
  for (int64_t i = threadIdx.x; i < cols; i += 256) most = fmaxf(most, fabsf(x[first + i]));
  int exponent = 0;
  frexpf(block_max(most), &exponent);
  const float scale = ldexpf(1.f, exponent - 7);
  for (int64_t i = threadIdx.x; i < cols; i += 256) {
    const float code = fminf(fmaxf(rintf(x[first + i] / scale), -127.f), 127.f);
    codes[first + i] = static_cast<int8_t>(code);
    y[first + i] = code * scale;
  }
}

extern "C" int launch(const float* x, int8_t* codes, float* y, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  const unsigned threads_ = 256, shared_ = 0;
  const cudaStream_t stream_ = static_cast<cudaStream_t>(stream);
  quantise<<<unsigned(rows), threads_, shared_, stream_>>>(x, codes, y, cols);
  return static_cast<int>(cudaGetLastError());
}
