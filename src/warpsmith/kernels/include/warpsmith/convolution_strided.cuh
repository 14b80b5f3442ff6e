// convolution_strided.cuh: forward convolutions of few channels with a stride along one or two axes. Blocks of stride x stride pixels
// become the channels of one pixel.
//
// The convolution is then one of stride 1 with a filter of ceil(kernel / stride) taps per axis and enough channels for 16 terms: for
// 11 x 11 taps, stride 4 and 3 channels 3 x 3 taps of 48 channels. Folding taps into channels instead writes every input several
// times (for this form four times as much).
#pragma once

#include <warpsmith/convolution_held.cuh>

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

struct StridedPlan {
  Plan plan;
  Form made;         // of stride 1
  int64_t filters;  // 16-byte units of its filters
  bool ok;
};

template <int Columns, int Rows>
StridedPlan make_strided_plan(const Form& f) {
  StridedPlan s = {};
  if (!unstrided(f, s.made)) return s;
  s.plan = best_plan(s.made, Columns, Rows);
  s.filters = (int64_t(s.made.co) * s.made.ci * s.made.taps() + 3) / 4;
  s.ok = can_hold<Columns, 1, 0>(s.plan) && !s.plan.input.folded;
  return s;
}

template <int Columns, int Rows>
int64_t strided_workspace(const Form& f) {
  const StridedPlan s = make_strided_plan<Columns, Rows>(f);
  return s.ok ? workspace_of(s.plan) + s.filters * 16 : workspace_of(best_plan(f, Columns, Rows));
}

// Forms without a form of stride 1 of at most kLongestSum steps take launch_held as they are.
template <int Columns, int Rows, bool Triple>
int launch_strided(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t stream) {
  if (int64_t(f.images) * f.co * f.out_volume() == 0) return 0;
  StridedPlan s = make_strided_plan<Columns, Rows>(f);
  if (!s.ok || !workspace) return launch_held<Columns, 1, Rows, Triple, 0>(f, x, w, bias, out, workspace, stream);
  const Blocks blocks = blocks_of(f);
  float* filters = static_cast<float*>(workspace) + workspace_of(s.plan) / 4;
  block_filter<<<132, 256, 0, stream>>>(blocks, s.made, w, filters);
  s.plan.input = block_input(s.plan.input, blocks);
  const int state = multiply_held<Columns, 1, Rows, Triple, 0>(s.plan, f.images, x, filters, bias, out, workspace, stream);
  return state ? state : launch_direct(f, x, w, bias, out, static_cast<const unsigned*>(workspace), stream, Identity());
}

}  // namespace conv
}  // namespace warpsmith
