// depthwise.cuh: one small filter per channel, stride 1, plain fp32 arithmetic. Bound by memory.
//
// A warp takes 32 * Vector columns and kRows rows of one channel; all its loads are on their way before the first is
// used. The eight warps of a block lie below each other, so that rows shared by two of them come from the L1 cache.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

namespace warpsmith {
namespace depthwise {

template <int N>
struct Lanes;
template <>
struct Lanes<1> { using type = float; };
template <>
struct Lanes<2> { using type = float2; };
template <>
struct Lanes<4> { using type = float4; };

constexpr int kWarps = 8;

// Vector: floats per access; input and output widths are multiples of it.
template <int KernelH, int KernelW, int Vector, int kRows, int PadH = 0, int PadW = 0>
__global__ __launch_bounds__(32 * kWarps) void filter(const float* __restrict__ x, const float* __restrict__ w, float* __restrict__ out,
                                                      int planes, int channels, int height, int width, int out_height, int out_width) {
  using Access = typename Lanes<Vector>::type;
  constexpr int kBefore = (PadW + Vector - 1) / Vector, kShift = kBefore * Vector - PadW;  // accesses left of the column
  constexpr int kAccesses = (kShift + Vector + KernelW - 1 + Vector - 1) / Vector;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int column = (blockIdx.x * 32 + lane) * Vector, row = (blockIdx.y * kWarps + warp) * kRows;
  if (row >= out_height || column >= out_width) return;
  for (int plane = blockIdx.z; plane < planes; plane += gridDim.z) {
    const float* from = x + int64_t(plane) * height * width + int64_t(row - PadH) * width + column;
    float in[kRows + KernelH - 1][kAccesses * Vector];
#pragma unroll
    for (int r = 0; r < kRows + KernelH - 1; ++r)
#pragma unroll
      for (int i = 0; i < kAccesses; ++i) {
        Access got = {};
        const int at = column + (i - kBefore) * Vector;
        if (unsigned(row + r - PadH) < unsigned(height) && unsigned(at) < unsigned(width))
          got = __ldg(reinterpret_cast<const Access*>(from + int64_t(r) * width) + (i - kBefore));
        const float* each = reinterpret_cast<const float*>(&got);
#pragma unroll
        for (int v = 0; v < Vector; ++v) in[r][i * Vector + v] = each[v];
      }
    float weight[KernelH][KernelW];
    const float* mine = w + int64_t(plane % channels) * KernelH * KernelW;
#pragma unroll
    for (int i = 0; i < KernelH * KernelW; ++i) weight[i / KernelW][i % KernelW] = __ldg(mine + i);
    float* to = out + int64_t(plane) * out_height * out_width + int64_t(row) * out_width + column;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row + r >= out_height) break;
      Access result;
      float* each = reinterpret_cast<float*>(&result);
#pragma unroll
      for (int v = 0; v < Vector; ++v) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < KernelH; ++i)
#pragma unroll
          for (int j = 0; j < KernelW; ++j) sum = fmaf(in[r + i][kShift + v + j], weight[i][j], sum);
        each[v] = sum;
      }
      *reinterpret_cast<Access*>(to + int64_t(r) * out_width) = result;
    }
  }
}

template <int KernelH, int KernelW, int Vector, int Rows, int PadH = 0, int PadW = 0>
int launch_as(const float* x, const float* w, float* out, int planes, int channels, int height, int width, cudaStream_t stream) {
  const int out_height = height + 2 * PadH - KernelH + 1, out_width = width + 2 * PadW - KernelW + 1;
  const dim3 grid((out_width + 32 * Vector - 1) / (32 * Vector), (out_height + kWarps * Rows - 1) / (kWarps * Rows), std::min(planes, 65535));
  filter<KernelH, KernelW, Vector, Rows, PadH, PadW><<<grid, 32 * kWarps, 0, stream>>>(x, w, out, planes, channels, height, width, out_height, out_width);
  return int(cudaGetLastError());
}

// x [batch, channels, height, width], w [channels, 1, KernelH, KernelW], out [batch, channels, height - KernelH + 1, ...].
template <int KernelH, int KernelW, int Rows = 8>
int launch(const float* x, const float* w, float* out, int64_t batch, int64_t channels, int64_t height, int64_t width, void* stream) {
  const int64_t out_height = height - KernelH + 1, out_width = width - KernelW + 1;
  if (batch * channels * out_height * out_width <= 0) return 0;
  cudaStream_t s = static_cast<cudaStream_t>(stream);
  const int planes = int(batch * channels);
  if (KernelW <= 5 && width % 4 == 0 && out_width % 4 == 0)
    return launch_as<KernelH, KernelW, 4, Rows>(x, w, out, planes, int(channels), int(height), int(width), s);
  if (width % 2 == 0 && out_width % 2 == 0)
    return launch_as<KernelH, KernelW, 2, Rows>(x, w, out, planes, int(channels), int(height), int(width), s);
  return launch_as<KernelH, KernelW, 1, Rows>(x, w, out, planes, int(channels), int(height), int(width), s);
}

// The same with so much padding (odd filters) that the image keeps its size.
template <int KernelH, int KernelW, int Rows = 8>
int launch_padded(const float* x, const float* w, float* out, int64_t batch, int64_t channels, int64_t height, int64_t width, void* stream) {
  if (batch * channels * height * width <= 0) return 0;
  constexpr int kPadH = KernelH / 2, kPadW = KernelW / 2;
  cudaStream_t s = static_cast<cudaStream_t>(stream);
  const int planes = int(batch * channels);
  if (width % 4 == 0) return launch_as<KernelH, KernelW, 4, Rows, kPadH, kPadW>(x, w, out, planes, int(channels), int(height), int(width), s);
  if (width % 2 == 0) return launch_as<KernelH, KernelW, 2, Rows, kPadH, kPadW>(x, w, out, planes, int(channels), int(height), int(width), s);
  return launch_as<KernelH, KernelW, 1, Rows, kPadH, kPadW>(x, w, out, planes, int(channels), int(height), int(width), s);
}

}  // namespace depthwise
}  // namespace warpsmith
