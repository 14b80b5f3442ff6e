// layer_norm_linear: layer normalisation, a linear layer with bias, and GELU.
//
// A first kernel normalises the rows into the workspace; bias and GELU are applied to the sums before they are stored.
#include <warpsmith/matmul.cuh>

namespace {

constexpr int THREADS = 256;

__device__ __forceinline__ float block_sum(float value, float* cells) {
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) cells[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0.f;
  for (int w = 0; w < THREADS / 32; ++w) value += cells[w];
  return value;
}

// One row per thread block; rows of up to KEPT * THREADS elements stay in registers.
__global__ void __launch_bounds__(THREADS) normalise(const float* __restrict__ x, const float* __restrict__ gain,
                                                     const float* __restrict__ shift, float* __restrict__ out,
                                                     int64_t cols, float eps) {
  constexpr int KEPT = 16;
  __shared__ float cells[THREADS / 32];
  const float* row = x + blockIdx.x * cols;
  float kept[KEPT];
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < KEPT; ++i) {
    const int64_t c = threadIdx.x + i * THREADS;
    kept[i] = c < cols ? row[c] : 0.f;
    sum += kept[i];
  }
  for (int64_t c = threadIdx.x + KEPT * THREADS; c < cols; c += THREADS) sum += row[c];
  // The rounded mean of equal elements is not the element itself, and where the variance is almost nothing the difference
  // is magnified: what is left of the sum corrects both.
  const float near = block_sum(sum, cells) / float(cols);
  float rest = 0.f, square = 0.f;
#pragma unroll
  for (int i = 0; i < KEPT; ++i) {
    const float d = threadIdx.x + i * THREADS < cols ? kept[i] - near : 0.f;
    rest += d, square = fmaf(d, d, square);
  }
  for (int64_t c = threadIdx.x + KEPT * THREADS; c < cols; c += THREADS) {
    const float d = row[c] - near;
    rest += d, square = fmaf(d, d, square);
  }
  rest = block_sum(rest, cells) / float(cols);
  const float mean = near + rest;
  const float variance = fmaxf(block_sum(square, cells) / float(cols) - rest * rest, 0.f);
  const float factor = 1.f / sqrtf(variance + eps);
#pragma unroll
  for (int i = 0; i < KEPT; ++i) {
    const int64_t c = threadIdx.x + i * THREADS;
    if (c < cols) out[blockIdx.x * cols + c] = (kept[i] - mean) * factor * __ldg(gain + c) + __ldg(shift + c);
  }
  for (int64_t c = threadIdx.x + KEPT * THREADS; c < cols; c += THREADS)
    out[blockIdx.x * cols + c] = (row[c] - mean) * factor * __ldg(gain + c) + __ldg(shift + c);
}

struct BiasGelu {
  static constexpr bool REPAIRS = true;
  warpsmith::split::Store plain;
  const float* bias;
  __device__ __forceinline__ bool by_rows() const { return plain.by_rows(); }
  __device__ __forceinline__ float* row_at(int64_t slice, int row) const { return plain.row_at(slice, row); }
  static __device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118654752f)); }
  __device__ __forceinline__ void finish(int64_t, int, int column, float& u, float& v) const {
    u = gelu(u + (column < plain.columns ? __ldg(bias + column) : 0.f));
    v = gelu(v + (column + 1 < plain.columns ? __ldg(bias + column + 1) : 0.f));
  }
  __device__ __forceinline__ void store(int64_t slice, int64_t stack, int row, int column, float u, float v) const {
    finish(stack, row, column, u, v);
    plain.store(slice, stack, row, column, u, v);
  }
};

int64_t normed_bytes(int64_t rows, int64_t cols) { return warpsmith::split::round_up(rows * cols * 4, 256); }

}  // namespace

extern "C" int64_t workspace_bytes(double eps, int64_t rows, int64_t cols, int64_t width) {
  return normed_bytes(rows, cols) + warpsmith::multiply_bytes({1, rows, cols, width, true});
}

extern "C" int launch(const float* x, const float* gain, const float* shift, const float* weight, const float* bias,
                      float* out, double eps, int64_t rows, int64_t cols, int64_t width, void* workspace, void* stream) {
  float* normed = static_cast<float*>(workspace);
  normalise<<<unsigned(rows), THREADS, 0, cudaStream_t(stream)>>>(x, gain, shift, normed, cols, float(eps));
  const warpsmith::Product p{1, rows, cols, width, true};
  return int(warpsmith::multiply(p, warpsmith::plain(normed, rows, cols), warpsmith::plain(weight, width, cols),
                                 BiasGelu{warpsmith::dense(out, p), bias},
                                 static_cast<char*>(workspace) + normed_bytes(rows, cols), cudaStream_t(stream)));
}
