// A bias added to every row, then GELU. A thread keeps one pack of the bias and takes the same pack of several rows.
#include <warpsmith/elementwise.cuh>

#ifndef TUNE_ROWS
#define TUNE_ROWS 4
#endif

namespace {
using namespace warpsmith;

template <int ROWS>
__global__ void __launch_bounds__(128) packed(const float* __restrict__ x, const float* __restrict__ bias,
                                              float* __restrict__ out, int64_t rows, int64_t cols) {
  const int64_t column = (int64_t(blockIdx.x) * 128 + threadIdx.x) * 4;
  if (column >= cols) return;
  const int64_t r0 = int64_t(blockIdx.y) * ROWS;
  float4 v[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    if (r0 + r < rows) v[r] = load_once(x + (r0 + r) * cols + column);
  const float4 b = load_shared_use(bias + column);
#pragma unroll
  for (int r = 0; r < ROWS; ++r)
    if (r0 + r < rows)
      store_once(out + (r0 + r) * cols + column,
                 make_float4(GeluErf::apply(v[r].x + b.x), GeluErf::apply(v[r].y + b.y), GeluErf::apply(v[r].z + b.z),
                             GeluErf::apply(v[r].w + b.w)));
}
__global__ void single(const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ out,
                       int64_t n, int64_t cols) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    out[i] = GeluErf::apply(x[i] + bias[i % cols]);
}
}  // namespace

extern "C" int launch(const float* x, const float* bias, float* out, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (rows * cols == 0) return 0;
  if (cols % 4 == 0 && rows <= 65535) {
    const unsigned across = unsigned(ceil_div(cols, 512));
    if (rows * cols >= (1 << 22))
      packed<TUNE_ROWS><<<dim3(across, unsigned(ceil_div(rows, TUNE_ROWS))), 128, 0, s>>>(x, bias, out, rows, cols);
    else
      packed<1><<<dim3(across, unsigned(rows)), 128, 0, s>>>(x, bias, out, rows, cols);
  } else {
    const int64_t blocks = ceil_div(rows * cols, 256);
    single<<<unsigned(blocks < 65535 ? blocks : 65535), 256, 0, s>>>(x, bias, out, rows * cols, cols);
  }
  return int(cudaGetLastError());
}
