// out[m, n] = a[m, k] b[k, n] in float32 for the cuda backend: tiles of 128 x 128 in shared memory, 8 x 8 results
// per thread, the next tile on its way while this one is multiplied.
constexpr int TILE = 128, DEPTH = 8, THREADS = 256, EACH = 8;
constexpr int LOADS = TILE * DEPTH / THREADS / 4;  // float4 per thread and tile

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

template <bool WHOLE>
__global__ void __launch_bounds__(THREADS, 2)
    gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, int m, int n, int k) {
  __shared__ __align__(16) float as[2][DEPTH][TILE + 4];  // transposed: a column of a is a row here
  __shared__ __align__(16) float bs[2][DEPTH][TILE];
  const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, t = threadIdx.x;
  const int ty = t / 16, tx = t % 16;
  float4 next_a[LOADS], next_b[LOADS];
  float sums[EACH][EACH] = {};

  const auto load = [&](int i0) {
#pragma unroll
    for (int l = 0; l < LOADS; ++l) {
      const int q = l * THREADS + t;
      next_a[l] = fetch<WHOLE>(a, row0 + q / (DEPTH / 4), i0 + q % (DEPTH / 4) * 4, m, k);
      next_b[l] = fetch<WHOLE>(b, i0 + q / (TILE / 4), col0 + q % (TILE / 4) * 4, k, n);
    }
  };
  const auto store = [&](int side) {
#pragma unroll
    for (int l = 0; l < LOADS; ++l) {
      const int q = l * THREADS + t, r = q / (DEPTH / 4), i = q % (DEPTH / 4) * 4;
      as[side][i][r] = next_a[l].x;
      as[side][i + 1][r] = next_a[l].y;
      as[side][i + 2][r] = next_a[l].z;
      as[side][i + 3][r] = next_a[l].w;
      *reinterpret_cast<float4*>(&bs[side][q / (TILE / 4)][q % (TILE / 4) * 4]) = next_b[l];
    }
  };

  load(0);
  store(0);
  __syncthreads();
  int side = 0;
  for (int i0 = 0; i0 < k; i0 += DEPTH) {
    const bool more = i0 + DEPTH < k;
    if (more) load(i0 + DEPTH);
#pragma unroll
    for (int i = 0; i < DEPTH; ++i) {
      float fa[EACH], fb[EACH];
      // Two groups of four, 64 apart: neighbouring threads then read neighbouring words.
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float4*>(fa + 4 * h) = *reinterpret_cast<float4*>(&as[side][i][64 * h + 4 * ty]);
        *reinterpret_cast<float4*>(fb + 4 * h) = *reinterpret_cast<float4*>(&bs[side][i][64 * h + 4 * tx]);
      }
#pragma unroll
      for (int r = 0; r < EACH; ++r) {
#pragma unroll
        for (int c = 0; c < EACH; ++c) sums[r][c] = fmaf(fa[r], fb[c], sums[r][c]);
      }
    }
    if (more) store(side ^ 1);
    __syncthreads();
    side ^= 1;
  }
#pragma unroll
  for (int r = 0; r < EACH; ++r) {
    const int row = row0 + r / 4 * 64 + 4 * ty + r % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int col = col0 + 64 * h + 4 * tx;
      float* to = out + static_cast<int64_t>(row) * n + col;
      if (WHOLE) {
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<float4*>(&sums[r][4 * h]);
      } else {
        for (int c = 0; c < 4; ++c) {
          if (row < m && col + c < n) to[c] = sums[r][4 * h + c];
        }
      }
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
