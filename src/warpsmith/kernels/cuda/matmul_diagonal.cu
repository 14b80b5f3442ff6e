// matmul_diagonal: out[row, column] = a[row] * b[row, column]. Bound by reading b and writing out once.

namespace {

constexpr int THREADS = 256;

// Rows are whole vectors of four, one per thread. Index is 32 bits wide where that is enough: a division of 64 bits
// costs as much as the memory.
template <class Index>
__global__ void __launch_bounds__(THREADS) scale_rows(const float* __restrict__ a, const float4* __restrict__ b,
                                                      float4* __restrict__ out, Index count, Index width) {
  const Index i = Index(blockIdx.x) * THREADS + threadIdx.x;
  if (i >= count) return;
  const float4 x = b[i];
  const float s = __ldg(a + i / width);
  out[i] = make_float4(x.x * s, x.y * s, x.z * s, x.w * s);
}

__global__ void __launch_bounds__(THREADS) scale_elements(const float* __restrict__ a, const float* __restrict__ b,
                                                          float* __restrict__ out, int64_t count, int64_t width) {
  for (int64_t i = int64_t(blockIdx.x) * THREADS + threadIdx.x; i < count; i += int64_t(gridDim.x) * THREADS)
    out[i] = __ldg(a + i / width) * b[i];
}

}  // namespace

extern "C" int launch(const float* a, const float* b, float* out, int64_t n, int64_t m, void* workspace, void* stream) {
  const int64_t count = n * m;
  if (count == 0) return 0;
  if (m % 4 == 0) {
    const int64_t vectors = count / 4;
    const unsigned blocks = unsigned((vectors + THREADS - 1) / THREADS);
    const float4* from = reinterpret_cast<const float4*>(b);
    float4* to = reinterpret_cast<float4*>(out);
    if (vectors < (int64_t(1) << 31))
      scale_rows<unsigned><<<blocks, THREADS, 0, cudaStream_t(stream)>>>(a, from, to, unsigned(vectors), unsigned(m / 4));
    else
      scale_rows<int64_t><<<blocks, THREADS, 0, cudaStream_t(stream)>>>(a, from, to, vectors, m / 4);
  } else {
    const int64_t blocks = (count + THREADS - 1) / THREADS;
    scale_elements<<<unsigned(blocks < (1 << 20) ? blocks : (1 << 20)), THREADS, 0, cudaStream_t(stream)>>>(a, b, out,
                                                                                                           count, m);
  }
  return int(cudaGetLastError());
}
