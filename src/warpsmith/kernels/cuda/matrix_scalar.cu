// matrix_scalar: every element times one number. Bound by reading and writing each element once.

namespace {

constexpr int THREADS = 256;
constexpr int PER_THREAD = 4;  // vectors of four, all loaded before the first is stored

__global__ void __launch_bounds__(THREADS) scale_vectors(const float4* __restrict__ a, float4* __restrict__ out,
                                                         int64_t vectors, float s) {
  const int64_t first = int64_t(blockIdx.x) * (THREADS * PER_THREAD) + threadIdx.x;
  float4 x[PER_THREAD];
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
    if (first + i * THREADS < vectors) x[i] = __ldcs(a + first + i * THREADS);
#pragma unroll
  for (int i = 0; i < PER_THREAD; ++i)
    if (first + i * THREADS < vectors)
      __stcs(out + first + i * THREADS, make_float4(x[i].x * s, x[i].y * s, x[i].z * s, x[i].w * s));
}

__global__ void scale_rest(const float* __restrict__ a, float* __restrict__ out, int64_t begin, int64_t end, float s) {
  const int64_t i = begin + threadIdx.x;
  if (i < end) out[i] = a[i] * s;
}

}  // namespace

extern "C" int launch(const float* a, float* out, double s, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  const int64_t count = rows * cols, vectors = count / 4;
  const float factor = float(s);
  const int64_t blocks = (vectors + THREADS * PER_THREAD - 1) / (THREADS * PER_THREAD);
  if (blocks)
    scale_vectors<<<unsigned(blocks), THREADS, 0, cudaStream_t(stream)>>>(reinterpret_cast<const float4*>(a),
                                                                          reinterpret_cast<float4*>(out), vectors, factor);
  if (count % 4) scale_rest<<<1, 32, 0, cudaStream_t(stream)>>>(a, out, vectors * 4, count, factor);
  return int(cudaGetLastError());
}
