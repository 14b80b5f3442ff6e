// convolution_few_terms.cuh: forward convolutions whose sums have at most 32 terms (channels of a group times taps), in plain fp32
// arithmetic and one pass over memory.
//
// When to use it: first layers of one to three channels, and any form with few terms where writing the output takes longer than
// the sums. Any sizes, strides, paddings, dilations and groups.
//
// How it works: a thread has two or four pixels and keeps all terms of their sums in registers. It goes through the output channels
// of its block, whose filters lie in shared memory; all threads read the same filter at a time. Neighbouring threads write
// neighbouring pixels, several at a time where the planes of the output begin at multiples of that many.
#pragma once

#include <warpsmith/convolution.cuh>

namespace warpsmith {
namespace conv {
namespace few_terms {

constexpr int kThreads = 128, kChannels = 64, kMostTerms = 32;  // output channels of a block, at most

template <int Terms>
struct Held {
  static constexpr int pixels = Terms <= 12 ? 4 : 2;  // of a thread
  static constexpr int packs = (Terms + 3) / 4;       // of four weights, the last one filled with zeros
};

// `kTogether`: the pixels of a thread are neighbours and are written with one access; otherwise they lie kThreads apart.
template <int Ci, int KernelD, int KernelH, int KernelW, bool kTogether>
__global__ void __launch_bounds__(kThreads, 4)
    sum_few_terms(const __grid_constant__ Form f, int channel_tiles, const float* __restrict__ x, const float* __restrict__ w,
                  const float* __restrict__ bias, float* __restrict__ out) {
  constexpr int kTerms = Ci * KernelD * KernelH * KernelW, kPixels = Held<kTerms>::pixels, kPacks = Held<kTerms>::packs;
  __shared__ __align__(16) float filters[kChannels * kPacks * 4];
  __shared__ float more[kChannels];
  const int group = int(blockIdx.y) / channel_tiles, first = int(blockIdx.y) % channel_tiles * kChannels;
  const int channels = min(kChannels, f.co - first), channel = group * f.co + first;
  for (int i = int(threadIdx.x); i < channels * kPacks * 4; i += kThreads) {
    const int term = i % (kPacks * 4);
    filters[i] = term < kTerms ? __ldg(w + int64_t(channel + i / (kPacks * 4)) * kTerms + term) : 0.0f;
  }
  for (int i = int(threadIdx.x); i < channels; i += kThreads) more[i] = bias ? __ldg(bias + channel + i) : 0.0f;

  const int volume = f.in_volume(), out_volume = f.out_volume();
  const int64_t total = int64_t(f.images) * out_volume;
  const int64_t begin = int64_t(blockIdx.x) * (kThreads * kPixels) + int64_t(threadIdx.x) * (kTogether ? kPixels : 1);
  constexpr int kApart = kTogether ? 1 : kThreads;
  float value[kPixels][kTerms];
  float* to[kPixels];
  bool exists[kPixels];
#pragma unroll
  for (int p = 0; p < kPixels; ++p) {
    const int64_t at = begin + p * kApart, image = at / out_volume;
    const int pixel = int(at - image * out_volume);
    exists[p] = at < total;
    to[p] = out + (image * f.groups * f.co + channel) * out_volume + pixel;
    const int ow = pixel % f.out[2], oh = pixel / f.out[2] % f.out[1], od = pixel / f.out[2] / f.out[1];
    const int d0 = od * f.stride[0] - f.pad[0], h0 = oh * f.stride[1] - f.pad[1], w0 = ow * f.stride[2] - f.pad[2];
    const float* from = x + (image * f.groups + group) * Ci * int64_t(volume);
#pragma unroll
    for (int t = 0; t < kTerms; ++t) {
      const int tap = t % (KernelD * KernelH * KernelW), c = t / (KernelD * KernelH * KernelW);
      const int d = d0 + tap / (KernelH * KernelW) * f.dilation[0], h = h0 + tap / KernelW % KernelH * f.dilation[1];
      const int v = w0 + tap % KernelW * f.dilation[2];
      const bool inside = unsigned(d) < unsigned(f.in[0]) && unsigned(h) < unsigned(f.in[1]) && unsigned(v) < unsigned(f.in[2]);
      value[p][t] = exists[p] && inside ? __ldg(from + c * int64_t(volume) + (int64_t(d) * f.in[1] + h) * f.in[2] + v) : 0.0f;
    }
  }
  __syncthreads();
#pragma unroll 2
  for (int c = 0; c < channels; ++c) {
    float sum[kPixels];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) sum[p] = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const float4 four = *reinterpret_cast<const float4*>(filters + (c * kPacks + k) * 4);
      const float weight[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int p = 0; p < kPixels; ++p)
          if (k * 4 + e < kTerms) sum[p] = fmaf(value[p][k * 4 + e], weight[e], sum[p]);
    }
#pragma unroll
    for (int p = 0; p < kPixels; ++p) sum[p] += more[c];
    const int64_t away = int64_t(c) * out_volume;
    if constexpr (kTogether && kPixels == 4) {
      if (exists[0]) *reinterpret_cast<float4*>(to[0] + away) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    } else if constexpr (kTogether) {
      if (exists[0]) *reinterpret_cast<float2*>(to[0] + away) = make_float2(sum[0], sum[1]);
    } else {
#pragma unroll
      for (int p = 0; p < kPixels; ++p)
        if (exists[p]) to[p][away] = sum[p];
    }
  }
}

}  // namespace few_terms

// A forward convolution with Ci channels in a group and a kernel of these extents. Forms with more than 65,535 tiles of output
// channels take the plain kernel.
template <int Ci, int KernelD, int KernelH, int KernelW>
int launch_few_terms(const Form& f, const float* x, const float* w, const float* bias, float* out, cudaStream_t stream) {
  using namespace few_terms;
  constexpr int kTerms = Ci * KernelD * KernelH * KernelW, kPixels = Held<kTerms>::pixels;
  static_assert(kTerms <= kMostTerms, "all terms of a sum are kept in registers");
  const int64_t total = int64_t(f.images) * f.out_volume();
  if (total * f.groups * f.co == 0) return 0;
  const int channel_tiles = (f.co + kChannels - 1) / kChannels;
  const int64_t tiles = int64_t(f.groups) * channel_tiles, blocks = (total + kThreads * kPixels - 1) / (kThreads * kPixels);
  if (tiles > 65535 || blocks > 2147483647) return launch_direct(f, x, w, bias, out, nullptr, stream, Identity());
  const dim3 grid{unsigned(blocks), unsigned(tiles), 1};
  if (f.out_volume() % kPixels == 0)
    sum_few_terms<Ci, KernelD, KernelH, KernelW, true><<<grid, kThreads, 0, stream>>>(f, channel_tiles, x, w, bias, out);
  else
    sum_few_terms<Ci, KernelD, KernelH, KernelW, false><<<grid, kThreads, 0, stream>>>(f, channel_tiles, x, w, bias, out);
  return int(cudaGetLastError());
}

}  // namespace conv
}  // namespace warpsmith
