// Pooling along two axes, stride one, square windows that reach at most two columns to either side.
//
// As `pool2` of pool.cuh (a warp takes 128 columns, a pack per lane, and walks down a strip of rows), but the next U rows
// are on their way while the last ones are used, and what lies beside a warp's columns comes in one load. It takes more
// registers than `pool2`, hence fewer warps, each of which always has loads on its way.
#pragma once
#include <warpsmith/pool.cuh>

namespace warpsmith {

template <typename P, int K, int PAD, int WARPS, int STRIP, int U, int BLOCKS>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    pool2_strips_ahead(const float* __restrict__ x, float* __restrict__ out, int height, int width, int out_height,
                       int out_width, unsigned tiles, unsigned strips, int64_t units) {
  constexpr int L = PAD, R = K - 1 - PAD;  // columns needed to the left and to the right of a pack
  static_assert(L <= 2 && R <= 2 && STRIP % U == 0 && U % K == 0, "window too wide");
  __shared__ float4 staged[WARPS][2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t unit = int64_t(blockIdx.x) * WARPS + warp;
  if (unit >= units) return;
  const unsigned tile = unsigned(unit % tiles);
  const unsigned strip = unsigned(unit / tiles % strips);
  const int64_t plane = unit / tiles / strips;
  const int x0 = int(tile) * 128;
  const int mine = x0 + lane * 4;
  const bool inside = mine < width;  // the width is a multiple of four
  const int y0 = int(strip) * STRIP;  // first row of the output
  const float* in = x + plane * int64_t(height) * width + mine;
  const int64_t plane_at = plane * int64_t(out_height) * out_width;
  // The first and the last lane need two elements beside the columns of the warp, if there are any.
  const bool at_edge = (lane == 0 && x0 > 0) || (lane == 31 && x0 + 128 < width);
  const int beside = lane == 0 ? -2 : 4;
  float4 row[U];
  float2 edge[U];
  auto load = [&](int i0) {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int y = y0 - PAD + i0 + u;
      const bool there = y >= 0 && y < height && i0 + u < STRIP + K - 1;
      const float id = P::identity();
      row[u] = make_float4(id, id, id, id);
      edge[u] = make_float2(id, id);
      if (there && inside) row[u] = load_shared_use(in + int64_t(y) * width);
      if (there && at_edge) edge[u] = __ldg(reinterpret_cast<const float2*>(in + int64_t(y) * width + beside));
    }
  };
  float kept[K][4];  // what the last rows gave along the columns
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) kept[k][e] = P::identity();
  auto done = [&](int i0) { return y0 + i0 - (K - 1) >= out_height || i0 >= STRIP + K - 1; };
  // Input row y0 - PAD + i completes output row y0 + i - (K - 1).
  load(0);
#pragma unroll 1
  for (int i0 = 0; !done(i0); i0 += U) {
    float4 now[U];
    float2 now_edge[U];
#pragma unroll
    for (int u = 0; u < U; ++u) now[u] = row[u], now_edge[u] = edge[u];
    if (!done(i0 + U)) load(i0 + U);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      float all[L + 4 + R];
      const float own[4] = {now[u].x, now[u].y, now[u].z, now[u].w};
      const float near[2] = {now_edge[u].x, now_edge[u].y};
#pragma unroll
      for (int e = 0; e < 4; ++e) all[L + e] = own[e];
#pragma unroll
      for (int k = 0; k < L; ++k) {
        const float v = __shfl_up_sync(kAll, own[4 - L + k], 1);
        all[k] = lane == 0 ? near[2 - L + k] : v;
      }
#pragma unroll
      for (int k = 0; k < R; ++k) {
        const float v = __shfl_down_sync(kAll, own[k], 1);
        all[L + 4 + k] = lane == 31 ? near[k] : v;
      }
      float o[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float w[K];
#pragma unroll
        for (int k = 0; k < K; ++k) w[k] = all[e + k];
        kept[u % K][e] = tree<P, K>(w);
#pragma unroll
        for (int k = 0; k < K; ++k) w[k] = kept[(u + 1 + k) % K][e];
        o[e] = P::finish(tree<P, K>(w), 1.0f / (K * K));
      }
      const int oy = y0 + i0 + u - (K - 1);
      if (i0 + u >= K - 1 && i0 + u < STRIP + K - 1 && oy < out_height) {  // the same for the whole warp
        staged[warp][u % 2][lane] = make_float4(o[0], o[1], o[2], o[3]);
        __syncwarp();
        const float* line = reinterpret_cast<const float*>(staged[warp][u % 2]);
        // Stores begin at multiples of 128 bytes, so that only the first and the last one fill cache lines in part.
        const int64_t row_at = plane_at + int64_t(oy) * out_width + x0;
        const int shift = int(row_at & 31);
#pragma unroll
        for (int j = 0; j < 5; ++j) {
          const int at = j * 32 + lane - shift;
          if (at >= 0 && at < 128 && x0 + at < out_width) put(out + row_at + at, line[at]);
        }
      }
    }
  }
}

// U: rows that are loaded together; BLOCKS: as many fit on a multiprocessor.
template <typename P, int K, int PAD, int WARPS, int STRIP, int U, int BLOCKS>
int pool2_ahead(const float* x, float* out, int64_t planes, int64_t height, int64_t width, int64_t out_height,
                int64_t out_width, void* stream) {
  if (planes == 0 || out_height <= 0 || out_width <= 0) return 0;
  if (width % 4 != 0 || out_width > width || height >= (1 << 30) || width >= (1 << 30))
    return pool_windows<P>(x, out,
                           {planes, {1, int(height), int(width)}, {1, int(out_height), int(out_width)}, {1, K, K},
                            {1, 1, 1}, {0, PAD, PAD}, {1, 1, 1}, true, 0},
                           stream);
  const unsigned tiles = unsigned(ceil_div(width, 128)), strips = unsigned(ceil_div(out_height, STRIP));
  const int64_t units = planes * tiles * strips;
  pool2_strips_ahead<P, K, PAD, WARPS, STRIP, U, BLOCKS>
      <<<unsigned(ceil_div(units, WARPS)), WARPS * 32, 0, static_cast<cudaStream_t>(stream)>>>(
          x, out, int(height), int(width), int(out_height), int(out_width), tiles, strips, units);
  return int(cudaGetLastError());
}

}  // namespace warpsmith
