// matmul_diagonal: out[row, column] = a[row] * b[row, column]. Bound by reading b and writing out once.

namespace {

constexpr int THREADS = 256;
constexpr int PER_THREAD = 4;

// Rows are whole vectors of four. Blocks of the grid go over columns first, then rows.
__global__ void __launch_bounds__(THREADS) scale_rows(const float* __restrict__ a, const float4* __restrict__ b,
                                                      float4* __restrict__ out, int64_t count, int64_t width) {
  const int64_t first = int64_t(blockIdx.x) * (THREADS * PER_THREAD) + threadIdx.x;
  float4 x[PER_THREAD];
  float s[PER_THREAD];
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
    if (first + i * THREADS < count) {
      x[i] = __ldcs(b + first + i * THREADS);
      s[i] = __ldg(a + (first + i * THREADS) / width);
    }
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
    if (first + i * THREADS < count)
      __stcs(out + first + i * THREADS, make_float4(x[i].x * s[i], x[i].y * s[i], x[i].z * s[i], x[i].w * s[i]));
}

// The same for a width that 32 bits hold: a division of 64 bits costs as much as the memory.
__global__ void __launch_bounds__(THREADS) scale_rows_32(const float* __restrict__ a, const float4* __restrict__ b,
                                                         float4* __restrict__ out, unsigned count, unsigned width) {
  const unsigned first = blockIdx.x * (THREADS * PER_THREAD) + threadIdx.x;
  float4 x[PER_THREAD];
  float s[PER_THREAD];
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
    if (first + i * THREADS < count) {
      x[i] = __ldcs(b + first + i * THREADS);
      s[i] = __ldg(a + (first + i * THREADS) / width);
    }
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
    if (first + i * THREADS < count)
      __stcs(out + first + i * THREADS, make_float4(x[i].x * s[i], x[i].y * s[i], x[i].z * s[i], x[i].w * s[i]));
}

__global__ void __launch_bounds__(THREADS) scale_elements(const float* __restrict__ a, const float* __restrict__ b,
                                                          float* __restrict__ out, int64_t count, int64_t width) {
  for (int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x; i < count; i += int64_t(gridDim.x) * THREADS)
    out[i] = __ldg(a + i / width) * b[i];
}

}  // namespace

extern "C" int launch(const float* a, const float* b, float* out, int64_t n, int64_t m, void* workspace, void* stream) {
  const int64_t count = n * m;
  if (m % 4 == 0) {
    const int64_t vectors = count / 4;
    const unsigned blocks = unsigned((vectors + THREADS * PER_THREAD - 1) / (THREADS * PER_THREAD));
    if (vectors < (int64_t(1) << 31))
      scale_rows_32<<<blocks, THREADS, 0, cudaStream_t(stream)>>>(a, reinterpret_cast<const float4*>(b),
                                                                  reinterpret_cast<float4*>(out), unsigned(vectors),
                                                                  unsigned(m / 4));
    else
      scale_rows<<<blocks, THREADS, 0, cudaStream_t(stream)>>>(a, reinterpret_cast<const float4*>(b),
                                                               reinterpret_cast<float4*>(out), vectors, m / 4);
  } else {
    const int64_t blocks = (count + THREADS - 1) / THREADS;
    scale_elements<<<unsigned(blocks < (1 << 20) ? blocks : (1 << 20)), THREADS, 0, cudaStream_t(stream)>>>(a, b, out,
                                                                                                           count, m);
  }
  return int(cudaGetLastError());
}
