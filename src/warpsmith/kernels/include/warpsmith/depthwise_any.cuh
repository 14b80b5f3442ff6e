// depthwise_any.cuh: filters for single channels with any kernel, stride, padding, dilation and channel multiplier, with or without
// bias; one or two axes. Plain fp32 arithmetic, bound by memory.
//
// When to use it: wherever depthwise.cuh does not apply (it is for stride 1, no bias, wide images), and for small images, whose
// rows do not fill a warp.
//
// How it works: a block takes several whole planes, or a band of one plane; either is one contiguous run of the input and of the
// output. The run comes to shared memory in 16-byte copies, wherever it begins. A thread computes up to four outputs of a column
// from values that it loads once. The results go through shared memory too, so that they are stored 16 bytes at a time. Images so
// wide that the rows of one filter do not fit into shared memory take a plain kernel.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include <warpsmith/divisor.cuh>

namespace warpsmith {
namespace depthwise_any {

// The options of a convolution, as constants; one axis is a height of 1 with a kernel of 1.
template <int KernelH, int KernelW, int StrideH, int StrideW, int PadH, int PadW, int DilationH, int DilationW, int Multiplier>
struct Options {
  static constexpr int kh = KernelH, kw = KernelW, sh = StrideH, sw = StrideW, ph = PadH, pw = PadW, dh = DilationH, dw = DilationW;
  static constexpr int multiplier = Multiplier, taps = KernelH * KernelW;
  static constexpr int64_t reach_h = int64_t(KernelH - 1) * DilationH, reach_w = int64_t(KernelW - 1) * DilationW;
  static constexpr bool held = taps <= 49;  // the filter fits into registers
  static constexpr int rows = held && KernelH > 1 && 3 * StrideH + reach_h < 32 ? 4 : 1;  // outputs of a thread
};

constexpr int kThreads = 256;
constexpr int64_t kMostBytes = 200 * 1024;  // of shared memory

// How the work is shared out.
struct Units {
  int channels, height, width, out_height, out_width;
  int64_t planes;
  int whole;          // planes of a unit; 0: a unit is a band of one plane
  int bands;          // of a plane
  int rows, columns;  // of the output of a unit
  int weights, results, pitch;  // places in shared memory, in floats; of one run of results
  Divisor strips, across;       // strips of a plane, and of one row of strips
};

__device__ __forceinline__ void copy16(float* to, const float* from, int bytes) {
  const unsigned at = unsigned(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__host__ __device__ inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
__host__ __device__ inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Sums of a strip of O::rows outputs below each other. Its filter begins at row `top` and column `left` of the plane, which may lie
// outside; `at` is that place in shared memory.
template <class O>
__device__ __forceinline__ void sum_strip(float (&sum)[O::rows], const float* at, const float* w, int top, int left, int height,
                                          int width) {
#pragma unroll
  for (int r = 0; r < O::rows; ++r) sum[r] = 0.0f;
  if constexpr (O::held) {
    constexpr int kSpan = (O::rows - 1) * O::sh + int(O::reach_h) + 1, kStep = O::rows == 1 ? O::dh : 1;
    float weight[O::taps];
#pragma unroll
    for (int i = 0; i < O::taps; ++i) weight[i] = w[i];
#pragma unroll
    for (int p = 0; p < kSpan; p += kStep) {
      const bool inside = unsigned(top + p) < unsigned(height);
      const float* line = at + p * width;
      float value[O::kw];
#pragma unroll
      for (int k = 0; k < O::kw; ++k) value[k] = inside && unsigned(left + k * O::dw) < unsigned(width) ? line[k * O::dw] : 0.0f;
#pragma unroll
      for (int r = 0; r < O::rows; ++r) {
        const int away = p - r * O::sh;  // a constant, as everything that follows from it
        if (away < 0 || away % O::dh != 0 || away / O::dh >= O::kh) continue;
#pragma unroll
        for (int k = 0; k < O::kw; ++k) sum[r] = fmaf(value[k], weight[away / O::dh * O::kw + k], sum[r]);
      }
    }
  } else {
    float part = 0.0f;
    for (int i = 0; i < O::kh; ++i) {
      if (unsigned(top + i * O::dh) >= unsigned(height)) continue;
      const float* line = at + i * O::dh * width;
      float along = 0.0f;
#pragma unroll 4
      for (int k = 0; k < O::kw; ++k)
        if (unsigned(left + k * O::dw) < unsigned(width)) along = fmaf(line[k * O::dw], w[i * O::kw + k], along);
      part += along;
    }
    sum[0] = part;
  }
}

template <class O>
__global__ void __launch_bounds__(kThreads)
    filter_planes(const __grid_constant__ Units u, const float* __restrict__ x, const float* __restrict__ w,
                  const float* __restrict__ bias, float* __restrict__ out) {
  extern __shared__ __align__(16) unsigned char bytes[];
  float* memory = reinterpret_cast<float*>(bytes);
  const int64_t area = int64_t(u.height) * u.width, out_area = int64_t(u.out_height) * u.out_width;
  const bool whole = u.whole > 0;
  const int64_t plane = whole ? int64_t(blockIdx.x) * u.whole : blockIdx.x / unsigned(u.bands);
  const int count = whole ? int(least(u.whole, u.planes - plane)) : 1;
  int row = 0, rows = u.out_height, column = 0, columns = u.out_width;
  int64_t begin = plane * area, end = (plane + count) * area;
  if (!whole) {
    const int band = int(blockIdx.x % unsigned(u.bands));
    if (u.columns < u.out_width) {  // along the one axis
      column = band * u.columns, columns = int(least(u.columns, u.out_width - column));
      const int64_t left = int64_t(column) * O::sw - O::pw, right = left + int64_t(columns - 1) * O::sw + O::reach_w + 1;
      begin = plane * area + most(0, least(left, u.width)), end = plane * area + most(0, least(right, u.width));
    } else {
      row = band * u.rows, rows = int(least(u.rows, u.out_height - row));
      const int64_t top = int64_t(row) * O::sh - O::ph, below = top + int64_t(rows - 1) * O::sh + O::reach_h + 1;
      begin = (plane * u.height + most(0, least(top, u.height))) * u.width;
      end = (plane * u.height + most(0, least(below, u.height))) * u.width;
    }
  }
  const int64_t from = begin / 4 * 4;
  for (int64_t i = from + threadIdx.x * 4; i < end; i += kThreads * 4)
    copy16(memory + (i - from), x + i, int(least(4, end - i)) * 4);
  float* weights = memory + u.weights;  // of every output plane, then the biases
  const int channel = int(plane % u.channels), filters = count * O::multiplier;
  for (int i = int(threadIdx.x); i < filters * O::taps; i += kThreads) {
    const int each = (channel + i / (O::multiplier * O::taps)) % u.channels;
    weights[i] = __ldg(w + int64_t(each) * (O::multiplier * O::taps) + i % (O::multiplier * O::taps));
  }
  float* biases = weights + filters * O::taps;
  for (int i = int(threadIdx.x); i < filters; i += kThreads)
    biases[i] = bias ? __ldg(bias + int64_t((channel + i / O::multiplier) % u.channels) * O::multiplier + i % O::multiplier) : 0.0f;
  copies_done();
  __syncthreads();

  // Results lie in runs that are contiguous in the output: one of all planes, or the bands of the output planes. A run begins at
  // the same distance from a multiple of 16 bytes as in the output.
  float* results = memory + u.results;
  const int64_t first = plane * O::multiplier * out_area + int64_t(row) * u.out_width + column;
  const int top = row * O::sh - O::ph, left = column * O::sw - O::pw;  // of the unit
  const float* origin = memory + (plane * area - from + int64_t(top) * u.width + left);
  for (int t = int(threadIdx.x); t < filters * int(u.strips.by); t += kThreads) {
    const int filter = int(u.strips.quotient(unsigned(t))), rest = t - filter * int(u.strips.by);
    const int group = int(u.across.quotient(unsigned(rest))), c = rest - group * u.columns, r0 = group * O::rows;
    if (c >= columns || r0 >= rows) continue;
    float sum[O::rows];
    sum_strip<O>(sum, origin + filter / O::multiplier * int(area) + r0 * O::sh * u.width + c * O::sw, weights + filter * O::taps,
                 top + r0 * O::sh, left + c * O::sw, u.height, u.width);
    const int64_t start = whole ? first : first + filter * out_area;
    float* to = results + filter * (whole ? int(out_area) : u.pitch) + int(start & 3) + r0 * u.out_width + c;
#pragma unroll
    for (int r = 0; r < O::rows; ++r)
      if (r0 + r < rows) to[r * u.out_width] = sum[r] + biases[filter];
  }
  __syncthreads();
  const int runs = whole ? 1 : filters;
  const int64_t length = whole ? filters * out_area : int64_t(rows - 1) * u.out_width + columns;
  for (int run = 0; run < runs; ++run) {
    const int64_t start = first + run * out_area, base = start / 4 * 4;
    const float* staged = results + int64_t(run) * u.pitch;
    for (int64_t i = base + threadIdx.x * 4; i < start + length; i += kThreads * 4) {
      const float4 four = *reinterpret_cast<const float4*>(staged + (i - base));
      if (i >= start && i + 4 <= start + length) {
        *reinterpret_cast<float4*>(out + i) = four;
      } else {
        const float each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (i + e >= start && i + e < start + length) out[i + e] = each[e];
      }
    }
  }
}

// A thread for each output, straight from memory.
template <class O>
__global__ void __launch_bounds__(kThreads)
    filter_plain(const __grid_constant__ Units u, const float* __restrict__ x, const float* __restrict__ w,
                 const float* __restrict__ bias, float* __restrict__ out) {
  const int64_t out_area = int64_t(u.out_height) * u.out_width, total = u.planes * O::multiplier * out_area;
  for (int64_t e = int64_t(blockIdx.x) * kThreads + threadIdx.x; e < total; e += int64_t(gridDim.x) * kThreads) {
    const int64_t filters = e / out_area, plane = filters / O::multiplier;
    const int pixel = int(e - filters * out_area), row = pixel / u.out_width, column = pixel - row * u.out_width;
    const int64_t channel = plane % u.channels * O::multiplier + filters % O::multiplier;
    float sum = 0.0f;
    for (int i = 0; i < O::kh; ++i) {
      const int64_t h = int64_t(row) * O::sh - O::ph + int64_t(i) * O::dh;
      if (h < 0 || h >= u.height) continue;
      const float* line = x + (plane * u.height + h) * u.width;
      float along = 0.0f;
      for (int k = 0; k < O::kw; ++k) {
        const int64_t v = int64_t(column) * O::sw - O::pw + int64_t(k) * O::dw;
        if (v >= 0 && v < u.width) along = fmaf(__ldg(line + v), __ldg(w + channel * O::taps + i * O::kw + k), along);
      }
      sum += along;
    }
    out[e] = sum + (bias ? __ldg(bias + channel) : 0.0f);
  }
}

inline int64_t up_to_four(int64_t n) { return (n + 3) / 4 * 4; }

// Floats of shared memory for `planes` whole planes or, where that is 0, for a band; also sets the places.
template <class O>
int64_t place(Units& u, int64_t planes, int64_t rows, int64_t columns) {
  const int64_t area = int64_t(u.height) * u.width, out_area = int64_t(u.out_height) * u.out_width;
  const int64_t filters = (planes ? planes : 1) * O::multiplier;
  int64_t input = planes * area, pitch = planes * O::multiplier * out_area + 8;
  if (!planes) {
    const bool across = columns < u.out_width;
    const int64_t in_rows = least((rows - 1) * O::sh + O::reach_h + 1, u.height);
    const int64_t in_columns = across ? least((columns - 1) * O::sw + O::reach_w + 1, u.width) : u.width;
    input = across ? in_columns : in_rows * u.width;
    pitch = up_to_four(across ? columns : rows * u.out_width) + 8;
  }
  const int64_t weights = up_to_four(input + 4), results = up_to_four(weights + filters * (O::taps + 1));
  const int64_t floats = results + up_to_four(planes ? pitch : pitch * filters);
  if (floats * 4 > kMostBytes) return floats;  // not used
  u.whole = int(planes), u.rows = int(rows), u.columns = int(columns);
  u.weights = int(weights), u.results = int(results), u.pitch = int(pitch);
  u.strips = Divisor(unsigned((rows + O::rows - 1) / O::rows * columns)), u.across = Divisor(unsigned(columns));
  return floats;
}

// The units of a convolution for that many multiprocessors; returns bytes of shared memory, 0 for the plain kernel.
template <class O>
int64_t share_out(Units& u, int processors) {
  const int64_t per_block[] = {36 * 1024, 72 * 1024, 110 * 1024, kMostBytes}, wanted = int64_t(processors) * 5;
  const bool one_axis = u.height == 1 && u.out_height == 1;
  const int64_t length = one_axis ? u.out_width : u.out_height;
  u.bands = 1;
  const int64_t one = place<O>(u, 1, u.out_height, u.out_width) * 4;
  const int64_t least_band = one_axis ? 256 : 8;  // bands shorter than this read too much twice
  if (one <= per_block[0] && (u.planes >= wanted || length <= least_band)) {
    const int64_t planes = most(1, least(per_block[0] / one, u.planes / wanted));
    return place<O>(u, planes, u.out_height, u.out_width) * 4;
  }
  auto bytes_of = [&](int64_t band) {
    Units none = u;
    return place<O>(none, 0, one_axis ? 1 : band, one_axis ? least(band, u.out_width) : u.out_width) * 4;
  };
  const int64_t stride = one_axis ? O::sw : O::sh, reach = one_axis ? O::reach_w : O::reach_h;
  int64_t band = 0;
  for (const int64_t limit : per_block) {
    int64_t low = 0, high = length;  // the longest band that fits
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (bytes_of(middle) <= limit) low = middle; else high = middle - 1;
    }
    band = low;
    if (band == length || (band > 0 && band * stride >= 4 * reach)) break;
  }
  if (band == 0) return 0;
  const int64_t step = one_axis ? 4 : O::rows;
  int64_t bands = (length + band - 1) / band;
  bands = most(bands, least((wanted + u.planes - 1) / u.planes, (length + least_band - 1) / least_band));
  int64_t even = (length + bands - 1) / bands;
  even = least((even + step - 1) / step * step, band);
  u.bands = int((length + even - 1) / even);
  if (u.planes * u.bands > 2147483647) return 0;
  return place<O>(u, 0, one_axis ? 1 : even, one_axis ? least(even, u.out_width) : u.out_width) * 4;
}

}  // namespace depthwise_any

// x [batch, channels, height, width], w [channels * multiplier, 1, kernel], bias [channels * multiplier] or nullptr.
template <class O>
int filter_channels(const float* x, const float* w, const float* bias, float* out, int64_t batch, int64_t channels, int64_t height,
                    int64_t width, void* stream_) {
  using namespace depthwise_any;
  cudaStream_t stream = static_cast<cudaStream_t>(stream_);
  const int64_t above = height + 2 * O::ph - O::reach_h - 1, aside = width + 2 * O::pw - O::reach_w - 1;
  if (batch * channels <= 0 || above < 0 || aside < 0) return 0;
  Units u = {};
  u.channels = int(channels), u.height = int(height), u.width = int(width);
  u.out_height = int(above / O::sh) + 1, u.out_width = int(aside / O::sw) + 1;
  u.planes = batch * channels;
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int64_t shared = share_out<O>(u, processors);
  if (shared == 0) {
    const int64_t total = u.planes * O::multiplier * u.out_height * u.out_width;
    const unsigned blocks = unsigned(least((total + kThreads - 1) / kThreads, int64_t(processors) * 64));
    filter_plain<O><<<blocks, kThreads, 0, stream>>>(u, x, w, bias, out);
    return int(cudaGetLastError());
  }
  const unsigned blocks = unsigned(u.whole ? (u.planes + u.whole - 1) / u.whole : u.planes * u.bands);
  const cudaError_t state = cudaFuncSetAttribute(filter_planes<O>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
  if (state != cudaSuccess) return int(state);
  filter_planes<O><<<blocks, kThreads, shared, stream>>>(u, x, w, bias, out);
  return int(cudaGetLastError());
}

}  // namespace warpsmith
