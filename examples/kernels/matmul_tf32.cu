// out[m, n] = a[m, k] b[k, n] on tensor cores for the cuda backend and the tf32 class: inputs rounded to TF32, sums
// in float32. Tiles of 128 x 128; eight warps, each with 64 x 32 of the result.
#include <mma.h>

using namespace nvcuda;

constexpr int TILE = 128, DEPTH = 16, THREADS = 256;
constexpr int PAD_A = DEPTH + 4, PAD_B = TILE + 8;  // strides that spread rows over the banks
constexpr int LOADS = TILE * DEPTH / THREADS / 4;
constexpr int DOWN = 4, ACROSS = 2;  // 16 x 16 fragments of one warp

template <bool WHOLE>
__device__ __forceinline__ float4 fetch(const float* from, int row, int col, int rows, int cols) {
  if constexpr (WHOLE) {
    return *reinterpret_cast<const float4*>(from + static_cast<int64_t>(row) * cols + col);
  } else {
    float v[4];
    for (int i = 0; i < 4; ++i) {
      v[i] = row < rows && col + i < cols ? from[static_cast<int64_t>(row) * cols + col + i] : 0.f;
    }
    return {v[0], v[1], v[2], v[3]};
  }
}

__device__ __forceinline__ float4 rounded(float4 v) {
  return {wmma::__float_to_tf32(v.x), wmma::__float_to_tf32(v.y), wmma::__float_to_tf32(v.z),
          wmma::__float_to_tf32(v.w)};
}

template <bool WHOLE>
__global__ void __launch_bounds__(THREADS, 2)
    gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k) {
  __shared__ __align__(32) float as[TILE * PAD_A];
  __shared__ __align__(32) float bs[DEPTH * PAD_B];
  const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, t = threadIdx.x;
  const int warp = t / 32, warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
  float4 next_a[LOADS], next_b[LOADS];
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[DOWN][ACROSS];
  for (auto& line : sums) {
    for (auto& sum : line) wmma::fill_fragment(sum, 0.f);
  }

  const auto load = [&](int i0) {
#pragma unroll
    for (int l = 0; l < LOADS; ++l) {
      const int q = l * THREADS + t;
      next_a[l] = fetch<WHOLE>(a, row0 + q / (DEPTH / 4), i0 + q % (DEPTH / 4) * 4, m, k);
      next_b[l] = fetch<WHOLE>(b, i0 + q / (TILE / 4), col0 + q % (TILE / 4) * 4, k, n);
    }
  };

  load(0);
  for (int i0 = 0; i0 < k; i0 += DEPTH) {
    __syncthreads();
#pragma unroll
    for (int l = 0; l < LOADS; ++l) {
      const int q = l * THREADS + t;
      *reinterpret_cast<float4*>(&as[q / (DEPTH / 4) * PAD_A + q % (DEPTH / 4) * 4]) = rounded(next_a[l]);
      *reinterpret_cast<float4*>(&bs[q / (TILE / 4) * PAD_B + q % (TILE / 4) * 4]) = rounded(next_b[l]);
    }
    __syncthreads();
    if (i0 + DEPTH < k) load(i0 + DEPTH);
#pragma unroll
    for (int i = 0; i < DEPTH; i += 8) {
      wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa[DOWN];
      wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb[ACROSS];
#pragma unroll
      for (int r = 0; r < DOWN; ++r) wmma::load_matrix_sync(fa[r], &as[(warp_row + 16 * r) * PAD_A + i], PAD_A);
#pragma unroll
      for (int c = 0; c < ACROSS; ++c) wmma::load_matrix_sync(fb[c], &bs[i * PAD_B + warp_col + 16 * c], PAD_B);
#pragma unroll
      for (int r = 0; r < DOWN; ++r) {
#pragma unroll
        for (int c = 0; c < ACROSS; ++c) wmma::mma_sync(sums[r][c], fa[r], fb[c], sums[r][c]);
      }
    }
  }

  __syncthreads();  // at the edges the tiles' memory serves to hand results over
  float* mine = &as[warp * 256];
  for (int r = 0; r < DOWN; ++r) {
    for (int c = 0; c < ACROSS; ++c) {
      const int row = row0 + warp_row + 16 * r, col = col0 + warp_col + 16 * c;
      if (WHOLE) {
        wmma::store_matrix_sync(out + static_cast<int64_t>(row) * n + col, sums[r][c], n, wmma::mem_row_major);
        continue;
      }
      wmma::store_matrix_sync(mine, sums[r][c], 16, wmma::mem_row_major);
      __syncwarp();
      for (int e = t % 32; e < 256; e += 32) {
        if (row + e / 16 < m && col + e % 16 < n) {
          out[static_cast<int64_t>(row + e / 16) * n + col + e % 16] = mine[e];
        }
      }
      __syncwarp();
    }
  }
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
  const dim3 grid(static_cast<unsigned>((n + TILE - 1) / TILE), static_cast<unsigned>((m + TILE - 1) / TILE));
  const bool whole = m % TILE == 0 && n % TILE == 0 && k % DEPTH == 0;
  const auto on = static_cast<cudaStream_t>(stream);
  const int rows = static_cast<int>(m), cols = static_cast<int>(n), depth = static_cast<int>(k);
  if (whole) {
    gemm<true><<<grid, THREADS, 0, on>>>(a, b, out, rows, cols, depth);
  } else {
    gemm<false><<<grid, THREADS, 0, on>>>(a, b, out, rows, cols, depth);
  }
  return static_cast<int>(cudaGetLastError());
}
