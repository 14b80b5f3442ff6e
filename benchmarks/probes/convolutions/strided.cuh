// Forward 2-d convolutions of few channels and a stride: blocks of stride x stride pixels become the channels of one pixel.
//
// The convolution is then one of stride 1 with a filter of ceil(kernel / stride) taps per axis and enough channels for 16 terms: for
// 11 x 11 taps, stride 4 and 3 channels 3 x 3 taps of 48 channels. Folding taps into channels instead writes every input several
// times (for this form four times as much).
#pragma once

#include "held.cuh"

namespace warpsmith {
namespace conv {

struct Blocks {
  int ci, stride[2], kernel[2], pad[2], in[2];  // of the form, height and width
};

inline Blocks blocks_of(const Form& f) {
  return {f.ci, {f.stride[1], f.stride[2]}, {f.kernel[1], f.kernel[2]}, {f.pad[1], f.pad[2]}, {f.in[1], f.in[2]}};
}

// The form of stride 1, and whether there is one.
inline bool unstrided(const Form& f, Form& made) {
  if (f.transposed || f.groups != 1 || f.in[0] != 1 || f.kernel[0] != 1 || f.dilation[1] != 1 || f.dilation[2] != 1) return false;
  const Axes kernel = {1, (f.kernel[1] + f.stride[1] - 1) / f.stride[1], (f.kernel[2] + f.stride[2] - 1) / f.stride[2]};
  if (f.out[1] < 1 || f.out[2] < 1 || f.ci * f.stride[1] * f.stride[2] > kMaxFolded) return false;
  made = make_form(f.images, 1, f.ci * f.stride[1] * f.stride[2], f.co, {1, f.out[1] + kernel.h - 1, f.out[2] + kernel.w - 1}, kernel);
  return true;
}

// The filters of the form of stride 1.
static __global__ void block_filter(const __grid_constant__ Blocks b, const __grid_constant__ Form made, const float* __restrict__ w,
                                    float* __restrict__ to) {
  const int area = b.stride[0] * b.stride[1], taps = made.kernel[1] * made.kernel[2], all = made.co * made.ci * taps;
  for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < all; e += gridDim.x * blockDim.x) {
    const int tap = e % taps, channel = e / taps % made.ci, co = e / taps / made.ci, c = channel / area, place = channel % area;
    const int h = tap / made.kernel[2] * b.stride[0] + place / b.stride[1], v = tap % made.kernel[2] * b.stride[1] + place % b.stride[1];
    const bool exists = h < b.kernel[0] && v < b.kernel[1];
    to[e] = exists ? w[((co * b.ci + c) * b.kernel[0] + h) * b.kernel[1] + v] : 0.0f;
  }
}

// What split_input needs to write the planes of the form of stride 1 from the input of the form itself: the terms of a pixel are
// those of its block.
inline InputArgs block_input(InputArgs a, const Blocks& b) {
  a.ci = b.ci, a.volume = b.in[0] * b.in[1];
  a.folded = 6;
  for (int i = 0; i < 2; ++i) a.in[i + 1] = b.in[i], a.istep[i + 1] = b.stride[i], a.first[i + 1] = -b.pad[i];
  const int area = b.stride[0] * b.stride[1];
  for (int t = 0; t < kMaxFolded; ++t) {
    a.channel[t] = short(t < b.ci * area ? t / area : -1);
    a.dd[t] = 0, a.dh[t] = short(t % area / b.stride[1]), a.dw[t] = short(t % b.stride[1]);
  }
  return a;
}

inline int64_t filter_units(const Form& made) { return (int64_t(made.co) * made.ci * made.taps() + 3) / 4; }

template <int Columns, int Rows>
int64_t strided_workspace(const Form& f) {
  Form made;
  if (!unstrided(f, made)) return 0;
  const Plan p = best_plan(made, Columns, Rows, held_tuning());
  return p.ok ? workspace_of(p) + filter_units(made) * 16 : 0;
}

template <int Columns, int Rows>
int launch_strided(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t stream) {
  if (int64_t(f.images) * f.co * f.out_volume() == 0) return 0;
  Form made;
  Plan p = {};
  if (unstrided(f, made)) p = best_plan(made, Columns, Rows, held_tuning());
  if (!p.ok || p.columns != Columns || p.input.folded || !workspace)
    return launch_direct(f, x, w, bias, out, nullptr, stream, Identity());
  if (TUNE_TURN >= 0) p.product.turn = TUNE_TURN;
  uint4* units = static_cast<uint4*>(workspace);
  unsigned* flags = reinterpret_cast<unsigned*>(units);
  float* filters = reinterpret_cast<float*>(units + kFlagUnits);
  uint4* w_planes = units + kFlagUnits + filter_units(made);
  uint4* x_planes = w_planes + p.w_units;
  cudaMemsetAsync(flags, 0, 256, stream);
  const Blocks blocks = blocks_of(f);
  block_filter<<<132, 256, 0, stream>>>(blocks, made, w, filters);
  split_filter<<<264, 128, 0, stream>>>(p.filter, filters, w_planes, flags);
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int wanted = (p.input.total + kSplitThreads - 1) / kSplitThreads;
  const dim3 grid(std::max(1, std::min(wanted, processors * 32 / std::min(f.images, processors * 32) + 1)), f.images);
  split_input<true><<<grid, kSplitThreads, 0, stream>>>(block_input(p.input, blocks), x, x_planes, flags);
  auto* kernel = held<Columns, 1, Rows, TUNE_TRIPLE, TUNE_FOLD>;
  const int bytes = kHead + 2 * Columns * kPitch * 4 + p.product.stages * p.product.stage_bytes;
  cudaError_t state = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (state != cudaSuccess) return int(state);
  kernel<<<std::min(processors, p.product.all_tiles), kProductThreads, bytes, stream>>>(p.product, x_planes, w_planes, bias, out);
  state = cudaGetLastError();
  if (state != cudaSuccess) return int(state);
  return launch_direct(f, x, w, bias, out, flags, stream, Identity());
}

}  // namespace conv
}  // namespace warpsmith
