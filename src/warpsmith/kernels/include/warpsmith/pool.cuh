// Pooling: windows that slide along one, two or three axes.
//
// Every input element is read once from device memory; windows that share elements meet them again in registers, by
// shuffles between neighbouring lanes, or in the caches. Any size works: what the fast ways do not cover (widths that
// are no multiple of four, edges) is computed window by window.
#pragma once
#include <warpsmith/packs.cuh>

namespace warpsmith {

struct MaxPool {
  static __device__ __forceinline__ float identity() { return -INFINITY; }
  static __device__ __forceinline__ float apply(float a, float b) { return max_nan(a, b); }
  static __device__ __forceinline__ float finish(float a, float) { return a; }
};
struct AvgPool {
  static __device__ __forceinline__ float identity() { return 0.0f; }
  static __device__ __forceinline__ float apply(float a, float b) { return a + b; }
  static __device__ __forceinline__ float finish(float a, float scale) { return a * scale; }  // padding counts
};

// ---------------------------------------------------------------------------------------------------------------------
// Any windows along three axes (the first ones have one element where there are fewer): a thread for each output.

struct Windows {
  int64_t planes;
  int in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  bool counts_padding;  // in the number that an average is divided by
  int divisor;          // of averages; 0: the number of elements
};

template <typename P, typename Index>
__global__ void pool_each(const float* __restrict__ x, float* __restrict__ out, const __grid_constant__ Windows w) {
  const Index n = Index(w.planes) * w.out[0] * w.out[1] * w.out[2];
  for (Index i = Index(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += Index(gridDim.x) * blockDim.x) {
    Index rest = i;
    int from[3], begin[3], end[3], padded = 1, inside = 1;
#pragma unroll
    for (int a = 2; a >= 0; --a) {
      from[a] = int(rest % w.out[a]) * w.stride[a] - w.padding[a];
      rest /= w.out[a];
      const int room = w.in[a] - from[a];  // elements from the window's first one to the end of the input
      begin[a] = from[a] < 0 ? (w.dilation[a] - 1 - from[a]) / w.dilation[a] : 0;
      end[a] = min(w.kernel[a], (room + w.dilation[a] - 1) / w.dilation[a]);
      padded *= min(w.kernel[a], room + w.padding[a]);
      inside *= end[a] - begin[a];
    }
    const float* plane = x + int64_t(rest) * w.in[0] * w.in[1] * w.in[2];
    float acc = P::identity();
    for (int k = begin[0]; k < end[0]; ++k)
      for (int r = begin[1]; r < end[1]; ++r) {
        const float* row = plane + (int64_t(from[0] + k * w.dilation[0]) * w.in[1] + from[1] + r * w.dilation[1]) * w.in[2];
        for (int c = begin[2]; c < end[2]; ++c) acc = P::apply(acc, __ldg(row + from[2] + c * w.dilation[2]));
      }
    const int count = w.divisor ? w.divisor : w.counts_padding ? padded : inside;
    out[i] = P::finish(acc, 1.0f / float(count));
  }
}
template <typename P>
int pool_windows(const float* x, float* out, const Windows& w, void* stream) {
  const int64_t n = w.planes * w.out[0] * w.out[1] * w.out[2];
  if (n == 0) return 0;
  const int64_t blocks = ceil_div(n, 256);
  const unsigned grid = unsigned(blocks < 1 << 20 ? blocks : 1 << 20);
  const auto s = static_cast<cudaStream_t>(stream);
  if (n < (int64_t(1) << 31))
    pool_each<P, uint32_t><<<grid, 256, 0, s>>>(x, out, w);
  else
    pool_each<P, int64_t><<<grid, 256, 0, s>>>(x, out, w);
  return int(cudaGetLastError());
}

// ---------------------------------------------------------------------------------------------------------------------
// One axis, stride one. A thread writes one aligned pack of the output; the window of inputs that it needs is read as
// aligned packs too. How far the two are shifted against each other is the same for a whole row.

template <typename P, int K, int PAD, int DIL>
__device__ __forceinline__ float window1(const float* x, int64_t length, int64_t col) {
  float acc = P::identity();
#pragma unroll
  for (int j = 0; j < K; ++j) {
    const int64_t at = col - PAD + j * DIL;
    if (at >= 0 && at < length) acc = P::apply(acc, x[at]);
  }
  return P::finish(acc, 1.0f / K);
}

template <typename P, int N>
__device__ __forceinline__ float tree(const float (&v)[N]) {
  if constexpr (N == 1) {
    return v[0];
  } else {
    float half[(N + 1) / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) half[i] = P::apply(v[2 * i], v[2 * i + 1]);
    if constexpr (N % 2) half[N / 2] = v[N - 1];
    return tree<P, (N + 1) / 2>(half);
  }
}

template <typename P, int K, int PAD, int DIL, int SHIFT>
__device__ __forceinline__ float4 pack1(const float* from) {
  constexpr int NP = (SHIFT + 4 + (K - 1) * DIL + 3) / 4;
  float in[4 * NP];
#pragma unroll
  for (int p = 0; p < NP; ++p) {
    const float4 v = load_shared_use(from + 4 * p);
    in[4 * p] = v.x, in[4 * p + 1] = v.y, in[4 * p + 2] = v.z, in[4 * p + 3] = v.w;
  }
  float o[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    float w[K];
#pragma unroll
    for (int j = 0; j < K; ++j) w[j] = in[SHIFT + e + j * DIL];
    o[e] = P::finish(tree<P, K>(w), 1.0f / K);
  }
  return make_float4(o[0], o[1], o[2], o[3]);
}

template <typename P, int K, int PAD, int DIL, int THREADS, int UNROLL>
__global__ void __launch_bounds__(THREADS) pool1_rows(const float* __restrict__ x, float* __restrict__ out,
                                                      int64_t length, int64_t out_length, int64_t total,
                                                      unsigned chunks) {
  const int64_t row = blockIdx.x / chunks;
  const unsigned chunk = blockIdx.x % chunks;
  const RowSpan span(row, out_length);
  const float* in = x + row * length;
  const int shift = int((row * length + (span.first * 4 - span.begin) - PAD) & 3);
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int64_t p = (int64_t(chunk) * UNROLL + u) * THREADS + threadIdx.x;
    if (p >= span.packs) return;
    const int64_t pack = span.first + p;
    const int64_t col = pack * 4 - span.begin;  // of the first element of the pack, may lie before the row
    const int64_t start = row * length + col - PAD - shift;
    constexpr int WIDEST = (3 + 4 + (K - 1) * DIL + 3) / 4 * 4;
    if (col >= PAD && col + 3 - PAD + (K - 1) * DIL < length && col + 4 <= out_length && start >= 0 &&
        start + WIDEST <= total) {
      float4 o;
      if (shift == 0) o = pack1<P, K, PAD, DIL, 0>(x + start);
      else if (shift == 1) o = pack1<P, K, PAD, DIL, 1>(x + start);
      else if (shift == 2) o = pack1<P, K, PAD, DIL, 2>(x + start);
      else o = pack1<P, K, PAD, DIL, 3>(x + start);
      store_once(out + pack * 4, o);
    } else {
      for (int e = 0; e < 4; ++e)
        if (col + e >= 0 && col + e < out_length)
          out[pack * 4 + e] = window1<P, K, PAD, DIL>(in, length, col + e);
    }
  }
}

template <typename P, int K, int PAD, int DIL, int THREADS, int UNROLL>
int pool1(const float* x, float* out, int64_t rows, int64_t length, int64_t out_length, void* stream) {
  if (rows == 0 || out_length <= 0) return 0;
  const unsigned chunks = unsigned(ceil_div(out_length / 4 + 2, int64_t(THREADS) * UNROLL));
  pool1_rows<P, K, PAD, DIL, THREADS, UNROLL><<<unsigned(rows * chunks), THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
      x, out, length, out_length, rows * length, chunks);
  return int(cudaGetLastError());
}

// ---------------------------------------------------------------------------------------------------------------------
// Two axes, stride one, square windows. A warp takes 128 columns (a pack per lane) and walks down a strip of rows; the
// last K rows live in registers. Outputs go through a small buffer of the warp so that they are stored side by side
// whatever the alignment of the output's rows is.

template <typename P, int K, int PAD, int WARPS, int STRIP, int U>
__global__ void __launch_bounds__(WARPS * 32) pool2_strips(const float* __restrict__ x, float* __restrict__ out,
                                                           int height, int width, int out_height, int out_width,
                                                           unsigned tiles, unsigned strips, int64_t units) {
  constexpr int L = PAD, R = K - 1 - PAD;  // columns needed to the left and to the right of a pack
  constexpr int EDGE = L > R ? L : R;
  static_assert(L <= 4 && R <= 4 && STRIP % U == 0 && U % K == 0, "window too wide");
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
  const float* in = x + plane * int64_t(height) * width;
  const int64_t plane_at = plane * int64_t(out_height) * out_width;
  const bool left_edge = lane == 0 && x0 > 0, right_edge = lane == 31 && x0 + 128 < width;
  float kept[K][4];  // what the last rows gave along the columns
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) kept[k][e] = P::identity();
  // Input row y0 - PAD + i completes output row y0 + i - (K - 1).
  for (int i0 = 0; i0 < STRIP + U; i0 += U) {
    if (y0 + i0 - (K - 1) >= out_height || i0 >= STRIP + K - 1) break;
    float4 row[U];
    float edge[U][EDGE > 0 ? EDGE : 1];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int y = y0 - PAD + i0 + u;
      const bool there = y >= 0 && y < height && i0 + u < STRIP + K - 1;
      const float id = P::identity();
      row[u] = make_float4(id, id, id, id);
#pragma unroll
      for (int k = 0; k < EDGE; ++k) edge[u][k] = id;
      if (there && inside) row[u] = load_shared_use(in + int64_t(y) * width + mine);
      if (there && left_edge)
#pragma unroll
        for (int k = 0; k < L; ++k) edge[u][k] = __ldg(in + int64_t(y) * width + x0 - L + k);
      if (there && right_edge)
#pragma unroll
        for (int k = 0; k < R; ++k) edge[u][k] = __ldg(in + int64_t(y) * width + x0 + 128 + k);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      float all[L + 4 + R];
      const float own[4] = {row[u].x, row[u].y, row[u].z, row[u].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) all[L + e] = own[e];
#pragma unroll
      for (int k = 0; k < L; ++k) {
        const float v = __shfl_up_sync(kAll, own[4 - L + k], 1);
        all[k] = lane == 0 ? (left_edge ? edge[u][k] : P::identity()) : v;
      }
#pragma unroll
      for (int k = 0; k < R; ++k) {
        const float v = __shfl_down_sync(kAll, own[k], 1);
        all[L + 4 + k] = lane == 31 ? (right_edge ? edge[u][k] : P::identity()) : v;
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

template <typename P, int K, int PAD, int WARPS, int STRIP, int U>  // U: rows that are loaded together
int pool2(const float* x, float* out, int64_t planes, int64_t height, int64_t width, int64_t out_height,
          int64_t out_width, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (planes == 0 || out_height <= 0 || out_width <= 0) return 0;
  if (width % 4 == 0 && out_width <= width && height < (1 << 30) && width < (1 << 30)) {
    const unsigned tiles = unsigned(ceil_div(width, 128)), strips = unsigned(ceil_div(out_height, STRIP));
    const int64_t units = planes * tiles * strips;
    pool2_strips<P, K, PAD, WARPS, STRIP, U><<<unsigned(ceil_div(units, WARPS)), WARPS * 32, 0, s>>>(
        x, out, int(height), int(width), int(out_height), int(out_width), tiles, strips, units);
  } else {
    return pool_windows<P>(x, out,
                           {planes, {1, int(height), int(width)}, {1, int(out_height), int(out_width)}, {1, K, K},
                            {1, 1, 1}, {0, PAD, PAD}, {1, 1, 1}, true, 0},
                           stream);
  }
  return int(cudaGetLastError());
}

// ---------------------------------------------------------------------------------------------------------------------
// Two axes, windows of K x K side by side. A block takes one row of outputs: the K rows of the input that belong to it
// lie next to each other. Threads sum columns (K loads in flight each), then the column sums are summed in groups of K.

template <typename P, int K, int THREADS, int VEC>
__global__ void __launch_bounds__(THREADS) pool2_tiles(const float* __restrict__ x, float* __restrict__ out,
                                                       int height, int width, int out_height, int out_width) {
  extern __shared__ float columns[];
  const int64_t plane = blockIdx.x / out_height;
  const int oy = blockIdx.x % out_height;
  const float* in = x + (plane * height + int64_t(oy) * K) * width;
  const int used = out_width * K;  // columns that belong to a window
  for (int c = threadIdx.x * VEC; c < used; c += THREADS * VEC) {
    if constexpr (VEC == 4) {
      float4 v[K];
#pragma unroll
      for (int k = 0; k < K; ++k) v[k] = load_once(in + int64_t(k) * width + c);
      float4 acc = v[0];
#pragma unroll
      for (int k = 1; k < K; ++k) {
        acc.x = P::apply(acc.x, v[k].x), acc.y = P::apply(acc.y, v[k].y);
        acc.z = P::apply(acc.z, v[k].z), acc.w = P::apply(acc.w, v[k].w);
      }
      *reinterpret_cast<float4*>(columns + c) = acc;
    } else {
      float acc = __ldg(in + c);
      for (int k = 1; k < K; ++k) acc = P::apply(acc, __ldg(in + int64_t(k) * width + c));
      columns[c] = acc;
    }
  }
  __syncthreads();
  float* to = out + (plane * out_height + oy) * out_width;
  for (int ox = threadIdx.x; ox < out_width; ox += THREADS) {
    float acc = columns[ox * K];
#pragma unroll
    for (int k = 1; k < K; ++k) acc = P::apply(acc, columns[ox * K + k]);
    to[ox] = P::finish(acc, 1.0f / (K * K));
  }
}

template <typename P, int K, int THREADS>
int pool2_side_by_side(const float* x, float* out, int64_t planes, int64_t height, int64_t width, int64_t out_height,
                       int64_t out_width, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (planes == 0 || out_height <= 0 || out_width <= 0) return 0;
  const size_t bytes = size_t(ceil_div(width, 4)) * 16;
  if (bytes > 48 * 1024)
    return pool_windows<P>(x, out,
                           {planes, {1, int(height), int(width)}, {1, int(out_height), int(out_width)}, {1, K, K},
                            {1, K, K}, {0, 0, 0}, {1, 1, 1}, true, 0},
                           stream);
  if (width % 4 == 0) {
    pool2_tiles<P, K, THREADS, 4><<<unsigned(planes * out_height), THREADS, bytes, s>>>(
        x, out, int(height), int(width), int(out_height), int(out_width));
  } else {
    pool2_tiles<P, K, THREADS, 1><<<unsigned(planes * out_height), THREADS, bytes, s>>>(
        x, out, int(height), int(width), int(out_height), int(out_width));
  }
  return int(cudaGetLastError());
}

// ---------------------------------------------------------------------------------------------------------------------
// Three axes, windows of 3 x 3 x 3 with padding one, two steps apart. A warp takes one row of outputs and 128 columns
// of the input, two outputs per lane, and walks through the depth; what a plane gave (three rows brought together,
// before the step along the columns) stays in registers until the last window that needs it.

template <typename P, int DIL>
__global__ void pool3_windows(const float* __restrict__ x, float* __restrict__ out, int64_t volumes, int64_t depth,
                              int64_t height, int64_t width, int64_t out_depth, int64_t out_height,
                              int64_t out_width) {
  const int64_t n = volumes * out_depth * out_height * out_width;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t ox = i % out_width, oy = i / out_width % out_height;
    const int64_t oz = i / out_width / out_height % out_depth, v = i / out_width / out_height / out_depth;
    float acc = P::identity();
    for (int a = 0; a < 3; ++a)
      for (int b = 0; b < 3; ++b)
        for (int c = 0; c < 3; ++c) {
          const int64_t z = 2 * oz - 1 + a * DIL, y = 2 * oy - 1 + b * DIL, xx = 2 * ox - 1 + c * DIL;
          if (z >= 0 && z < depth && y >= 0 && y < height && xx >= 0 && xx < width)
            acc = P::apply(acc, x[((v * depth + z) * height + y) * width + xx]);
        }
    out[i] = P::finish(acc, 1.0f / 27);
  }
}

template <int EDGE>
struct Line3 {
  float own[4];
  float edge[EDGE];
};

template <typename P, int DIL, int WARPS, int BLOCKS, bool TILED>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    pool3_walk(const float* __restrict__ x, float* __restrict__ out, int depth, int height, int width, int out_depth,
               int out_height, int out_width, unsigned tiles, unsigned bands) {
  constexpr int R = 2 * DIL - 2;  // columns needed to the right of a pack; one is needed to the left
  constexpr int EDGE = R > 1 ? R : 1;
  static_assert(R <= 4, "window too wide");
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned tile = blockIdx.x % tiles;
  const unsigned band = blockIdx.x / tiles % bands;
  const int64_t volume = blockIdx.x / tiles / bands;
  const int oy = int(band) * WARPS + warp;
  if (oy >= out_height) return;
  const int x0 = int(tile) * 128, mine = x0 + lane * 4;
  const bool inside = mine < width;
  const bool left_edge = TILED && lane == 0 && x0 > 0, right_edge = TILED && R > 0 && lane == 31 && x0 + 128 < width;
  const int64_t plane = int64_t(height) * width;
  const float* in = x + volume * depth * plane;
  using Line = Line3<EDGE>;

  const float id = P::identity();
  int64_t offset[3];  // of the three rows in their plane
  bool there[3];
#pragma unroll
  for (int b = 0; b < 3; ++b) {
    const int y = 2 * oy - 1 + b * DIL;
    there[b] = y >= 0 && y < height;
    offset[b] = there[b] ? int64_t(y) * width : 0;
  }
  struct Raw {
    float4 row[3];
    float edge[3][EDGE];
  };
  auto fetch = [&](int z, Raw& raw) {  // starts the loads of three rows of plane z
    const bool z_there = z >= 0 && z < depth;
    const float* at = in + (z_there ? z * plane : 0);
#pragma unroll
    for (int b = 0; b < 3; ++b) {
      raw.row[b] = make_float4(id, id, id, id);
      if (z_there && there[b] && inside) raw.row[b] = load_shared_use(at + offset[b] + mine);
      raw.edge[b][0] = id;
      if (z_there && there[b] && left_edge) raw.edge[b][0] = __ldg(at + offset[b] + x0 - 1);
      if constexpr (R > 0) {
#pragma unroll
        for (int k = 1; k < R; ++k) raw.edge[b][k] = id;
        if (z_there && there[b] && right_edge)
#pragma unroll
          for (int k = 0; k < R; ++k) raw.edge[b][k] = __ldg(at + offset[b] + x0 + 128 + k);
      }
    }
  };
  auto gather = [&](const Raw& raw) {  // brings the three rows together
    Line line;
    line.own[0] = P::apply(P::apply(raw.row[0].x, raw.row[1].x), raw.row[2].x);
    line.own[1] = P::apply(P::apply(raw.row[0].y, raw.row[1].y), raw.row[2].y);
    line.own[2] = P::apply(P::apply(raw.row[0].z, raw.row[1].z), raw.row[2].z);
    line.own[3] = P::apply(P::apply(raw.row[0].w, raw.row[1].w), raw.row[2].w);
#pragma unroll
    for (int k = 0; k < EDGE; ++k)
      line.edge[k] = P::apply(P::apply(raw.edge[0][k], raw.edge[1][k]), raw.edge[2][k]);
    return line;
  };
  auto load = [&](int z) {
    Raw raw;
    fetch(z, raw);
    return gather(raw);
  };
  auto join = [&](const Line& a, const Line& b) {
    Line c;
#pragma unroll
    for (int e = 0; e < 4; ++e) c.own[e] = P::apply(a.own[e], b.own[e]);
#pragma unroll
    for (int e = 0; e < EDGE; ++e) c.edge[e] = P::apply(a.edge[e], b.edge[e]);
    return c;
  };
  const bool paired = out_width % 2 == 0;
  const int ox = (x0 >> 1) + lane * 2;
  float* to = out + (volume * out_depth * out_height + oy) * int64_t(out_width);
  const int64_t out_plane = int64_t(out_height) * out_width;
  auto emit = [&](int oz, const Line& line) {
    float all[1 + 4 + R];
    const float l = __shfl_up_sync(kAll, line.own[3], 1);
    all[0] = lane == 0 ? (left_edge ? line.edge[0] : P::identity()) : l;
#pragma unroll
    for (int e = 0; e < 4; ++e) all[1 + e] = line.own[e];
#pragma unroll
    for (int k = 0; k < R; ++k) {
      const float r = __shfl_down_sync(kAll, line.own[k], 1);
      all[5 + k] = lane == 31 ? (right_edge ? line.edge[k] : P::identity()) : r;
    }
    float o[2];
#pragma unroll
    for (int e = 0; e < 2; ++e)
      o[e] = P::finish(P::apply(P::apply(all[2 * e], all[2 * e + DIL]), all[2 * e + 2 * DIL]), 1.0f / 27);
    float* at = to + oz * out_plane + ox;
    if (paired && ox + 1 < out_width) {
      put(reinterpret_cast<float2*>(at), make_float2(o[0], o[1]));
    } else {
      if (ox < out_width) at[0] = o[0];
      if (ox + 1 < out_width) at[1] = o[1];
    }
  };
  if constexpr (DIL == 1) {
    Line before = load(-1);
#pragma unroll 1
    for (int oz = 0; oz < out_depth; ++oz) {
      Raw one, two;
      fetch(2 * oz, one);
      fetch(2 * oz + 1, two);
      const Line a = gather(one), b = gather(two);
      emit(oz, join(join(before, a), b));
      before = b;
    }
  } else {
    static_assert(DIL == 1 || DIL == 3, "only these are written");
    Line odd0 = load(-1), odd1 = load(1), odd2 = load(3);
#pragma unroll 1
    for (int oz = 0; oz < out_depth; ++oz) {
      Raw one, two;
      fetch(2 * oz + 2, one);
      fetch(2 * oz + 5, two);
      const Line a = gather(one), b = gather(two);
      emit(oz, join(join(odd0, a), b));
      odd0 = odd1, odd1 = odd2, odd2 = b;
    }
  }
}

template <typename P, int DIL, int WARPS, int BLOCKS>
int pool3(const float* x, float* out, int64_t volumes, int64_t depth, int64_t height, int64_t width, int64_t out_depth,
          int64_t out_height, int64_t out_width, void* stream) {
  const auto s = static_cast<cudaStream_t>(stream);
  if (volumes == 0 || out_depth <= 0 || out_height <= 0 || out_width <= 0) return 0;
  if (width % 4 == 0 && width < (1 << 30) && height < (1 << 30) && depth < (1 << 30)) {
    const unsigned tiles = unsigned(ceil_div(width, 128)), bands = unsigned(ceil_div(out_height, WARPS));
    auto kernel = tiles > 1 ? pool3_walk<P, DIL, WARPS, BLOCKS, true> : pool3_walk<P, DIL, WARPS, BLOCKS, false>;
    kernel<<<unsigned(volumes * tiles * bands), WARPS * 32, 0, s>>>(
        x, out, int(depth), int(height), int(width), int(out_depth), int(out_height), int(out_width), tiles, bands);
  } else {
    const int64_t blocks = ceil_div(volumes * out_depth * out_height * out_width, 256);
    pool3_windows<P, DIL><<<unsigned(blocks < 1 << 20 ? blocks : 1 << 20), 256, 0, s>>>(
        x, out, volumes, depth, height, width, out_depth, out_height, out_width);
  }
  return int(cudaGetLastError());
}

}  // namespace warpsmith
