// One warp per row, four elements per load where the rows allow it.
template <bool QUADS>
__global__ void gemv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ out, int64_t rows,
                     int64_t cols) {
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.y) + threadIdx.y;
  if (row >= rows) return;  // the whole warp
  float sum = 0.f;
  if constexpr (QUADS) {
    const float4* in = reinterpret_cast<const float4*>(a + row * cols);
    const float4* vector = reinterpret_cast<const float4*>(x);
    for (int64_t q = threadIdx.x; q < cols / 4; q += 32) {
      const float4 u = __ldcs(in + q), v = __ldg(vector + q);
      sum += (u.x * v.x + u.y * v.y) + (u.z * v.z + u.w * v.w);
    }
  } else {
    for (int64_t c = threadIdx.x; c < cols; c += 32) sum += a[row * cols + c] * __ldg(x + c);
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(~0u, sum, offset);
  if (threadIdx.x == 0) out[row] = sum;
}

extern "C" int launch(const float* a, const float* x, float* out, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  const dim3 block(32, 4);
  const auto kernel = cols % 4 == 0 ? gemv<true> : gemv<false>;
  kernel<<<static_cast<unsigned>((rows + 3) / 4), block, 0, static_cast<cudaStream_t>(stream)>>>(a, x, out, rows, cols);
  return static_cast<int>(cudaGetLastError());
}
