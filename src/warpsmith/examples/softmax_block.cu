// One block per row; the row stays in registers between the passes, so that memory is read once.
constexpr int THREADS = 256;
constexpr int KEEP = 64;  // values a thread can hold: rows of up to THREADS * KEEP columns

template <bool MAX>
__device__ float across_block(float value, float* shared) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(~0u, value, offset);
    value = MAX ? fmaxf(value, other) : value + other;
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int warp = 1; warp < THREADS / 32; ++warp) value = MAX ? fmaxf(value, shared[warp]) : value + shared[warp];
  __syncthreads();
  return value;
}

template <int COUNT>
__global__ void __launch_bounds__(THREADS) softmax(const float* x, float* out, int64_t cols) {
  __shared__ float shared[THREADS / 32];
  const float* in = x + blockIdx.x * cols;
  float* result = out + blockIdx.x * cols;
  float kept[COUNT];
  float largest = -INFINITY, sum = 0;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int64_t i = threadIdx.x + int64_t(k) * THREADS;
    kept[k] = i < cols ? in[i] : -INFINITY;
    largest = fmaxf(largest, kept[k]);
  }
  largest = across_block<true>(largest, shared);
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    kept[k] = expf(kept[k] - largest);
    sum += kept[k];
  }
  const float scale = 1.0f / across_block<false>(sum, shared);
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
    const int64_t i = threadIdx.x + int64_t(k) * THREADS;
    if (i < cols) result[i] = kept[k] * scale;
  }
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (cols > THREADS * KEEP) return 1;
  auto kernel = cols <= THREADS * 4 ? softmax<4> : cols <= THREADS * 16 ? softmax<16> : softmax<KEEP>;
  kernel<<<rows, THREADS, 0, cudaStream_t(stream)>>>(x, out, cols);
  return cudaGetLastError();
}
