// convolution.cuh: convolutions of any form in fp32 accuracy on the tensor cores of an H100/H200 (sm_90a).
//
// Forms: 1 to 3 spatial axes, forward or transposed, any stride, padding, dilation, output padding and groups.
//
// How it works
// ------------
// Per axis an output index is o = ostep * j + r and the input index it reads for one tap is i = istep * j + off, where
// ostep = stride and r = phase for a transposed convolution (else 1 and 0), and istep = stride for a forward one
// (else 1). So every convolution is a set of stride-1 problems in j with a list of (tap, off); no zero is multiplied.
//  1. `split_input` writes the input as two fp16 planes, hi and lo, with x = hi + lo / 2048 (22 bits), in blocks of eight
//     channels per pixel (16 bytes), padded with zeros, so that the pixels of an image are one flat array
//     of pitch Wp per row and Hp rows per slice. A tap is then a constant distance in that array.
//  2. `split_filter` writes the filters likewise, in the order in which the main kernel reads them.
//  3. `product` computes out[pixel, column] = sum over taps and channels of x[pixel + distance(tap), c] * w[tap, c, column]
//     with wgmma: rows = 64 consecutive pixels of the flat array, columns = output channels (times the phases of
//     the last axis). Without a swizzle a row of the operand is 16 bytes, so that a tap is a shift of the start address of
//     the descriptor by whole pixels, and one range of pixels in shared memory serves all taps near each other.
//     hi*hi goes to one set of sums, hi*lo + lo*hi to another; both are added to fp32 registers after
//     every stage, because tensor cores truncate when they accumulate.
//  4. `repair` computes everything again with plain fp32 arithmetic if a value lies outside the range in which the
//     split is exact enough (not finite, above 60000, or a tensor whose values all lie below 2^-12). It is always launched, and
//     returns at once otherwise.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include <warpsmith/bulk_copy.cuh>
#include <warpsmith/wgmma_f16.cuh>

namespace warpsmith {
namespace conv {

// --- the form -------------------------------------------------------------------------------------------------------

// One convolution. Axes are depth, height, width; those that are missing have size 1, kernel 1, stride 1, padding 0.
struct Form {
  int images, groups;
  int ci, co;  // channels per group
  int in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
  int transposed;

  __host__ __device__ int in_volume() const { return in[0] * in[1] * in[2]; }
  __host__ __device__ int out_volume() const { return out[0] * out[1] * out[2]; }
  __host__ __device__ int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

struct Axes {
  int d, h, w;
};

// A form from its options, as PyTorch names them; the output's size follows. Weights are [co * groups, ci, kernel], transposed
// [ci * groups, co, kernel], where ci and co are those of one group.
inline Form make_form(int64_t images, int groups, int ci, int co, Axes in, Axes kernel, Axes stride = {1, 1, 1}, Axes pad = {0, 0, 0},
                      Axes dilation = {1, 1, 1}, bool transposed = false, Axes output_padding = {0, 0, 0}) {
  Form f = {int(images), groups, ci, co, {in.d, in.h, in.w}, {}, {kernel.d, kernel.h, kernel.w}, {stride.d, stride.h, stride.w},
            {pad.d, pad.h, pad.w}, {dilation.d, dilation.h, dilation.w}, transposed};
  const int more[3] = {output_padding.d, output_padding.h, output_padding.w};
  for (int a = 0; a < 3; ++a) {
    const int reach = f.dilation[a] * (f.kernel[a] - 1);
    f.out[a] = transposed ? (f.in[a] - 1) * f.stride[a] - 2 * f.pad[a] + reach + more[a] + 1
                          : f.in[a] + 2 * f.pad[a] < reach + 1 ? 0 : (f.in[a] + 2 * f.pad[a] - reach - 1) / f.stride[a] + 1;
    f.out[a] = std::max(f.out[a], 0);
  }
  return f;
}

// What is done to a sum before it is written: bias of its channel (or null), then the functor.
struct Identity {
  __host__ __device__ float operator()(float value) const { return value; }
};

constexpr float kLoScale = 2048.0f, kLoUnscale = 1.0f / 2048.0f;
constexpr int kPitch = 68;  // floats of a row of a staged result: 64 pixels of one channel
constexpr int kHead = 256 + 2 * 2 * 256 * 4;  // bytes of shared memory for barriers and places
constexpr int kMaxTaps = 160, kMaxRuns = 160, kMaxProblems = 16, kMaxPhases = 8, kMaxFolded = 128;
constexpr float kLargest = 60000.0f, kSmallest = 1.0f / 4096.0f;
constexpr unsigned kOutside = 1, kXSeen = 2, kWSeen = 4;  // of the range flags

// --- plain kernel: right for every form, used where the others do not apply ------------------------------------------

__host__ __device__ inline float direct_sum(const Form& f, const float* x, const float* w, int image, int channel, int od,
                                            int oh, int ow) {
  const int g = channel / f.co, c_out = channel % f.co;
  const int o[3] = {od, oh, ow};
  float sum = 0.0f;
  for (int kd = 0; kd < f.kernel[0]; ++kd)
    for (int kh = 0; kh < f.kernel[1]; ++kh)
      for (int kw = 0; kw < f.kernel[2]; ++kw) {
        const int k[3] = {kd, kh, kw};
        int i[3];
        bool inside = true;
        for (int a = 0; a < 3; ++a) {
          int at = f.transposed ? o[a] + f.pad[a] - k[a] * f.dilation[a] : o[a] * f.stride[a] - f.pad[a] + k[a] * f.dilation[a];
          if (f.transposed) {
            inside = inside && at >= 0 && at % f.stride[a] == 0;
            at = at >= 0 ? at / f.stride[a] : at;
          }
          inside = inside && at >= 0 && at < f.in[a];
          i[a] = at;
        }
        if (!inside) continue;
        const int tap = (kd * f.kernel[1] + kh) * f.kernel[2] + kw, taps = f.taps();
        const int64_t volume = f.in_volume();
        const float* xs = x + (int64_t(image) * f.groups + g) * f.ci * volume + (int64_t(i[0]) * f.in[1] + i[1]) * f.in[2] + i[2];
        for (int c = 0; c < f.ci; ++c) {
          const int64_t at = f.transposed ? (int64_t(g * f.ci + c) * f.co + c_out) * taps + tap
                                          : (int64_t(g * f.co + c_out) * f.ci + c) * taps + tap;
          sum = fmaf(xs[c * volume], w[at], sum);
        }
      }
  return sum;
}

// `flags` null: always. Otherwise only where the range flags say that the split is not exact enough.
template <class Epilogue>
__global__ void direct(const __grid_constant__ Form f, const float* __restrict__ x, const float* __restrict__ w,
                       const float* __restrict__ bias, float* __restrict__ out, const unsigned* flags, Epilogue epilogue) {
  if (flags && *flags == (kXSeen | kWSeen)) return;
  const int64_t volume = f.out_volume(), total = int64_t(f.images) * f.groups * f.co * volume;
  for (int64_t e = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; e < total; e += int64_t(gridDim.x) * blockDim.x) {
    const int64_t channels = e / volume;
    const int pixel = int(e - channels * volume), image = int(channels / (f.groups * f.co)), channel = int(channels % (f.groups * f.co));
    const int ow = pixel % f.out[2], oh = pixel / f.out[2] % f.out[1], od = pixel / f.out[2] / f.out[1];
    const float sum = direct_sum(f, x, w, image, channel, od, oh, ow);
    out[e] = epilogue(sum + (bias ? bias[channel] : 0.0f));
  }
}

// --- the plan: what the kernels need to know, worked out on the host --------------------------------------------------

struct InputArgs {
  int groups, ci, volume;   // of one image
  int in[3], istep[3];      // input sizes; input steps per pixel of a plane
  int parts[3];             // planes per axis: positions modulo the stride (1 where taps are folded)
  int first[3];             // coordinate of pixel 0
  int dp, hp, wp;           // pixels of one plane
  int plane;                // dp * hp * wp
  int total;                // pixels of all planes
  int k8;                   // blocks of eight terms per pixel
  int folded;               // axes whose taps are terms, as bits (depth 1, height 2, width 4); then the table below
  short channel[kMaxFolded], dd[kMaxFolded], dh[kMaxFolded], dw[kMaxFolded];
};

struct Problem {
  int rd, rh;        // phases of depth and height
  int run, runs;     // first run, number of runs
  int tap, taps;
};

struct Run {         // taps that share one range of pixels
  int offset;        // of the range from the pixel, in the flat array
  int tap, taps;
};

struct ProductArgs {
  int groups, problems, column_tiles, tiles, all_tiles;
  int turn;          // blocks change places by so many from round to round, where tiles differ in length
  int pixels;        // of a tile
  int vector;        // floats per access to the output: rows of planes and output are multiples of it
  int co, couts;     // output channels per group, and of one column tile
  int total;         // pixels of all planes of the input
  int hp, wp, count[3], out[3];
  int ostep[3];
  int k8, steps;     // blocks of eight terms; steps of 16 terms per stage
  int range;         // pixels of a stage
  int stages, stage_bytes, x_bytes;
  int64_t image_out;   // floats of one image of the output
  int64_t w_tile;      // 16-byte units of one (group, column tile)
  Problem problem[kMaxProblems];
  Run run[kMaxRuns];
  short shift[kMaxTaps];        // of a tap within its run
  signed char phase[kMaxPhases];  // of the last axis: its place among the columns, -1: always zero
};

struct FilterArgs {
  int transposed, groups, ci, co, couts, columns, column_tiles, taps_kernel;
  int kernel[3];
  int k8, steps;
  int all_taps;
  int phases;                      // active phases of the last axis
  int64_t w_tile;
  short tap_d[kMaxTaps], tap_h[kMaxTaps], tap_u[kMaxTaps];  // kernel indices; index of the offset of the last axis
  short tap_run[kMaxTaps];
  short run_tap[kMaxRuns], run_taps[kMaxRuns];
  short kx[kMaxPhases][64];        // active phase, offset -> kernel index of the last axis or -1
  int folded;
  short channel[kMaxFolded], fold_d[kMaxFolded], fold_h[kMaxFolded], fold_u[kMaxFolded];  // kernel indices where folded, or -1
};

struct Plan {
  InputArgs input;
  ProductArgs product;
  FilterArgs filter;
  int columns;          // of a tile: 8, 16, 24, 32, 48 or 64
  int64_t x_units, w_units;  // 16-byte units of workspace
  bool ok;
};

inline int floor_div(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// What may be tried: the longest distance of taps that share a range of pixels, the most taps of one, steps of 16 terms per
// stage (0: chosen).
struct Tuning {
  int span = 192, most_taps = 12, steps = 0;
};

// How to compute a form; `fold` says of which axes taps count as channels (few channels; bits: depth 1, height 2, width 4),
// `widest` the most columns of a tile, `span` the longest distance of taps that share a range.
inline Plan make_plan(const Form& f, int fold, int widest = 64, int span = 192, int steps = 0, int smem = 227 * 1024, int most_taps = 12,
                      int pixels = 512) {
  Plan p = {};
  p.ok = false;
  InputArgs& in = p.input;
  ProductArgs& pr = p.product;
  FilterArgs& fl = p.filter;
  in.groups = pr.groups = fl.groups = f.groups;
  in.ci = fl.ci = f.ci;
  in.volume = f.in_volume();
  pr.co = fl.co = f.co;
  fl.transposed = f.transposed;
  fl.taps_kernel = f.taps();
  for (int a = 0; a < 3; ++a) fl.kernel[a] = f.kernel[a], in.in[a] = f.in[a], pr.out[a] = f.out[a];

  // Per axis and phase: the list of (kernel index, offset).
  struct Tap { int k, off; };
  Tap list[3][kMaxPhases][64];
  int size[3][kMaxPhases] = {};
  int low[3], high[3];
  for (int a = 0; a < 3; ++a) {
    const int ostep = f.transposed ? f.stride[a] : 1, istep = f.transposed ? 1 : f.stride[a];
    if (ostep > kMaxPhases || f.kernel[a] > 64) return p;
    in.istep[a] = istep;
    pr.ostep[a] = ostep;
    pr.count[a] = (f.out[a] + ostep - 1) / ostep;
    low[a] = 1 << 30, high[a] = -(1 << 30);
    for (int r = 0; r < ostep; ++r)
      for (int k = 0; k < f.kernel[a]; ++k) {
        int off;
        if (f.transposed) {
          const int distance = r + f.pad[a] - k * f.dilation[a];
          if (((distance % ostep) + ostep) % ostep) continue;
          off = floor_div(distance, ostep);
        } else {
          off = k * f.dilation[a] - f.pad[a];
        }
        list[a][r][size[a][r]++] = {k, off};
        const int at = floor_div(off, istep);
        low[a] = std::min(low[a], at), high[a] = std::max(high[a], at);
      }
  }

  // The last axis: offsets of all its phases together; phases become columns.
  int offsets[64], number = 0, active = 0;
  for (int r = 0; r < pr.ostep[2]; ++r) {
    pr.phase[r] = size[2][r] ? active++ : -1;
    for (int t = 0; t < size[2][r]; ++t) {
      const int off = list[2][r][t].off;
      if (std::find(offsets, offsets + number, off) == offsets + number) {
        if (number == 64) return p;
        offsets[number++] = off;
      }
    }
  }
  if (!active) return p;
  std::sort(offsets, offsets + number);
  for (int r = 0; r < pr.ostep[2]; ++r) {
    if (pr.phase[r] < 0) continue;
    for (int u = 0; u < number; ++u) fl.kx[int(pr.phase[r])][u] = -1;
    for (int t = 0; t < size[2][r]; ++t) {
      const int u = int(std::find(offsets, offsets + number, list[2][r][t].off) - offsets);
      fl.kx[int(pr.phase[r])][u] = short(list[2][r][t].k);
    }
  }
  fl.phases = active;

  // Columns: output channels of a tile times active phases, a width for which there is a kernel.
  const int widths[] = {8, 16, 24, 32, 48, 64, 128};
  int couts = std::min(f.co, widest / active);
  if (couts < 1) return p;
  pr.column_tiles = (f.co + couts - 1) / couts;
  couts = (f.co + pr.column_tiles - 1) / pr.column_tiles;
  p.columns = 0;
  for (int width : widths)
    if (!p.columns && width >= couts * active && width <= widest) p.columns = width;
  if (!p.columns) return p;
  pr.couts = fl.couts = couts;
  fl.columns = p.columns;
  fl.column_tiles = pr.column_tiles;

  // Terms: channels, or channels and taps of the axes of `fold`.
  const bool fold_d = fold & 1, fold_h = fold & 2, fold_w = fold & 4, gone[3] = {fold_d, fold_h, fold_w};
  if ((fold_d && pr.ostep[0] > 1) || (fold_h && pr.ostep[1] > 1)) return p;  // phases have taps of their own
  int terms = f.ci;
  in.folded = fl.folded = fold;
  if (fold) {
    const int nu = fold_w ? number : 1, nh = fold_h ? size[1][0] : 1, nd = fold_d ? size[0][0] : 1;
    terms = nd * nh * nu * f.ci;
    if (terms > kMaxFolded) return p;
    int t = 0;
    for (int d = 0; d < nd; ++d)
      for (int h = 0; h < nh; ++h)
        for (int u = 0; u < nu; ++u)
          for (int c = 0; c < f.ci; ++c, ++t) {
            in.channel[t] = fl.channel[t] = short(c);
            in.dw[t] = short(fold_w ? offsets[u] : 0);
            in.dh[t] = short(fold_h ? list[1][0][h].off : 0);
            in.dd[t] = short(fold_d ? list[0][0][d].off : 0);
            fl.fold_u[t] = short(fold_w ? u : -1);
            fl.fold_h[t] = short(fold_h ? list[1][0][h].k : -1);
            fl.fold_d[t] = short(fold_d ? list[0][0][d].k : -1);
          }
    for (; t < kMaxFolded; ++t) in.channel[t] = fl.channel[t] = -1;
  }
  const int k16 = (terms + 15) / 16;
  if (!steps) steps = k16 % 4 == 0 ? 2 : k16 % 3 == 0 ? (k16 == 3 ? 3 : 1) : k16 % 2 == 0 ? 2 : 1;
  if (k16 % steps) return p;
  pr.k8 = fl.k8 = in.k8 = 2 * k16;

  // Planes of the input.
  for (int a = 0; a < 3; ++a) {
    in.parts[a] = gone[a] ? 1 : in.istep[a];
    in.first[a] = gone[a] ? 0 : in.istep[a] * low[a];
    if (gone[a]) low[a] = high[a] = 0;
  }
  in.dp = pr.count[0] + high[0] - low[0];
  in.hp = pr.hp = pr.count[1] + high[1] - low[1];
  in.wp = pr.wp = pr.count[2] + high[2] - low[2];
  const int64_t plane = int64_t(in.dp) * in.hp * in.wp, total = plane * in.parts[0] * in.parts[1] * in.parts[2];
  if (total > (1 << 30)) return p;
  in.plane = int(plane);
  in.total = pr.total = int(total);

  // Problems, runs and taps.
  int tap = 0, run = 0, widest_range = 0, longest = 0;
  pr.problems = 0;
  for (int rd = 0; rd < pr.ostep[0]; ++rd)
    for (int rh = 0; rh < pr.ostep[1]; ++rh) {
      if (pr.problems == kMaxProblems) return p;
      Problem& q = pr.problem[pr.problems++];
      q = {rd, rh, run, 0, tap, 0};
      struct Place { int at, d, h, u; };
      Place place[kMaxTaps];
      int places = 0;
      const int nd = fold_d ? 1 : size[0][rd], nh = fold_h ? 1 : size[1][rh], nu = fold_w ? 1 : number;
      for (int d = 0; d < nd; ++d)
        for (int h = 0; h < nh; ++h)
          for (int u = 0; u < nu; ++u) {
            if (places == kMaxTaps || tap + places >= kMaxTaps) return p;
            const int off[3] = {fold_d ? 0 : list[0][rd][d].off, fold_h ? 0 : list[1][rh][h].off, fold_w ? 0 : offsets[u]};
            int part = 0, at[3];
            for (int a = 0; a < 3; ++a) {
              at[a] = gone[a] ? 0 : floor_div(off[a], in.istep[a]) - low[a];
              part = part * in.parts[a] + (gone[a] ? 0 : off[a] - in.istep[a] * floor_div(off[a], in.istep[a]));
            }
            place[places++] = {part * in.plane + (at[0] * in.hp + at[1]) * in.wp + at[2], fold_d ? -1 : list[0][rd][d].k,
                               fold_h ? -1 : list[1][rh][h].k, fold_w ? -1 : u};
          }
      std::sort(place, place + places, [](const Place& a, const Place& b) { return a.at < b.at; });
      // As many runs as needed, of about equal numbers of taps.
      for (int t = 0; t < places;) {
        int n = 1;
        while (t + n < places && place[t + n].at - place[t].at <= span && n < most_taps) ++n;
        if (run == kMaxRuns) return p;
        pr.run[run] = {place[t].at, tap, n};
        fl.run_tap[run] = short(tap), fl.run_taps[run] = short(n);
        for (int e = 0; e < n; ++e) {
          pr.shift[tap + e] = short(place[t + e].at - place[t].at);
          fl.tap_d[tap + e] = short(place[t + e].d), fl.tap_h[tap + e] = short(place[t + e].h), fl.tap_u[tap + e] = short(place[t + e].u);
          fl.tap_run[tap + e] = short(run);
        }
        widest_range = std::max(widest_range, place[t + n - 1].at - place[t].at);
        longest = std::max(longest, n);
        ++run, ++q.runs;
        tap += n, t += n, q.taps += n;
      }
    }
  fl.all_taps = tap;
  pr.pixels = pixels;
  pr.vector = in.wp % 4 == 0 && f.out[2] % 4 == 0 ? 4 : in.wp % 2 == 0 && f.out[2] % 2 == 0 ? 2 : 1;
  pr.range = (pixels + widest_range + 7) / 8 * 8;

  // Stages of shared memory.
  pr.steps = fl.steps = steps;
  const int epilogue = kHead + 2 * p.columns * kPitch * 4;
  for (;; --steps) {
    pr.steps = fl.steps = steps;
    pr.x_bytes = 4 * steps * pr.range * 16;
    pr.stage_bytes = pr.x_bytes + longest * steps * 64 * p.columns;
    pr.stages = std::min(6, (smem - epilogue) / std::max(pr.stage_bytes, 1));
    if (pr.stages >= 2) break;
    do --steps; while (steps > 0 && k16 % steps);
    if (steps < 1) return p;
    ++steps;
  }

  const int64_t flat = int64_t(pr.count[0] - 1) * in.hp * in.wp + int64_t(pr.count[1] - 1) * in.wp + pr.count[2];
  pr.tiles = int((flat + pixels - 1) / pixels);
  const int64_t all = int64_t(pr.tiles) * f.images * f.groups * pr.problems * pr.column_tiles;
  if (all > (1 << 30)) return p;
  pr.all_tiles = int(all);
  pr.turn = pr.problems > 1 ? 37 : 0;
  pr.image_out = int64_t(f.groups) * f.co * f.out_volume();
  pr.w_tile = fl.w_tile = int64_t(tap) * k16 * 4 * p.columns;
  p.x_units = int64_t(f.images) * f.groups * pr.k8 * 2 * total;
  p.w_units = fl.w_tile * f.groups * pr.column_tiles;
  p.ok = true;
  return p;
}

// --- splitting into fp16 -----------------------------------------------------------------------------------------------

__device__ __forceinline__ void split8(const float* v, uint4& hi, uint4& lo) {
  unsigned h[4], l[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __half2 top = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
    const float2 back = __half22float2(top);
    const __half2 rest = __floats2half2_rn((v[2 * i] - back.x) * kLoScale, (v[2 * i + 1] - back.y) * kLoScale);
    h[i] = *reinterpret_cast<const unsigned*>(&top);
    l[i] = *reinterpret_cast<const unsigned*>(&rest);
  }
  hi = make_uint4(h[0], h[1], h[2], h[3]);
  lo = make_uint4(l[0], l[1], l[2], l[3]);
}

// Range flags of one value. NaN counts as outside.
__device__ __forceinline__ unsigned range_of(float largest, bool bad, unsigned seen) {
  return (bad || !(largest <= kLargest) ? kOutside : 0) | (largest >= kSmallest ? seen : 0);
}

// Flags of all threads of a block, added to those in memory.
__device__ inline void tell_range(unsigned mine, unsigned* flags) {
  const unsigned any = __reduce_or_sync(0xffffffffu, mine);
  if (threadIdx.x % 32 == 0 && any && (any & ~*reinterpret_cast<volatile unsigned*>(flags))) atomicOr(flags, any);
}

// Where a pixel of the planes lies in the input: coordinates of the term with no distance.
__host__ __device__ inline void locate(const InputArgs& a, int pixel, int at[3]) {
  const int part = pixel / a.plane;
  int rest = pixel - part * a.plane;
  const int pw = part % a.parts[2], ph = part / a.parts[2] % a.parts[1], pd = part / a.parts[2] / a.parts[1];
  const int w = rest % a.wp;
  rest /= a.wp;
  const int h = rest % a.hp, d = rest / a.hp;
  at[0] = a.istep[0] * d + a.first[0] + pd;
  at[1] = a.istep[1] * h + a.first[1] + ph;
  at[2] = a.istep[2] * w + a.first[2] + pw;
}

// One term of one pixel; `x` is that of the image and group.
__host__ __device__ inline float term_of(const InputArgs& a, const float* x, const int at[3], int term) {
  int c = term, d = at[0], h = at[1], w = at[2];
  if (a.folded) {
    if (term >= kMaxFolded) return 0.0f;
    c = a.channel[term];
    d += a.dd[term], h += a.dh[term], w += a.dw[term];
  }
  if (c < 0 || c >= a.ci || unsigned(d) >= unsigned(a.in[0]) || unsigned(h) >= unsigned(a.in[1]) || unsigned(w) >= unsigned(a.in[2]))
    return 0.0f;
  return x[int64_t(c) * a.volume + (int64_t(d) * a.in[1] + h) * a.in[2] + w];
}

constexpr int kSplitThreads = 256;

// Planes: [image and group][block of eight terms][hi, lo][pixel], 16 bytes each.
template <bool Folded>
__global__ __launch_bounds__(kSplitThreads) void split_input(const __grid_constant__ InputArgs a, const float* __restrict__ x,
                                                             uint4* __restrict__ planes, unsigned* flags) {
  const int64_t image = blockIdx.y;
  const float* mine = x + image * a.ci * a.volume;
  uint4* to = planes + image * a.k8 * 2 * a.total;
  float largest = 0.0f;
  bool bad = false;
  for (int pixel = blockIdx.x * kSplitThreads + threadIdx.x; pixel < a.total; pixel += gridDim.x * kSplitThreads) {
    int at[3];
    locate(a, pixel, at);
    const bool inside = unsigned(at[0]) < unsigned(a.in[0]) && unsigned(at[1]) < unsigned(a.in[1]) && unsigned(at[2]) < unsigned(a.in[2]);
    const float* from = mine + (int64_t(at[0]) * a.in[1] + at[1]) * a.in[2] + at[2];
#pragma unroll 2
    for (int block = 0; block < a.k8; ++block) {
      float v[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (Folded) {
          v[i] = term_of(a, mine, at, 8 * block + i);
        } else {
          const int c = 8 * block + i;
          v[i] = inside && c < a.ci ? __ldg(from + int64_t(c) * a.volume) : 0.0f;
        }
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i])), bad = bad || v[i] != v[i];
      uint4 hi, lo;
      split8(v, hi, lo);
      to[int64_t(2 * block) * a.total + pixel] = hi;
      to[int64_t(2 * block + 1) * a.total + pixel] = lo;
    }
  }
  __syncwarp();
  tell_range(range_of(largest, bad, kXSeen), flags);
}

// The weight of one term of one tap in one column; 0 where there is none.
__host__ __device__ inline float weight_of(const FilterArgs& a, const float* w, int group, int tile, int tap, int term, int column) {
  const int phase = column / a.couts, channel = tile * a.couts + column % a.couts;
  if (phase >= a.phases || channel >= a.co) return 0.0f;
  int c = term, u = a.tap_u[tap], d = a.tap_d[tap], h = a.tap_h[tap];
  if (a.folded) {
    if (term >= kMaxFolded) return 0.0f;
    c = a.channel[term];
    if (c < 0) return 0.0f;
    if (a.folded & 4) u = a.fold_u[term];
    if (a.folded & 2) h = a.fold_h[term];
    if (a.folded & 1) d = a.fold_d[term];
  }
  if (c >= a.ci) return 0.0f;
  const int k = a.kx[phase][u];
  if (k < 0) return 0.0f;
  const int at = (d * a.kernel[1] + h) * a.kernel[2] + k;
  return a.transposed ? w[(int64_t(group * a.ci + c) * a.co + channel) * a.taps_kernel + at]
                      : w[(int64_t(group * a.co + channel) * a.ci + c) * a.taps_kernel + at];
}

// Place of a block of 16 terms of a tap, in blocks, within its (group, column tile): stages one after the other.
__host__ __device__ inline int filter_block(const FilterArgs& a, int tap, int k16) {
  const int run = a.tap_run[tap], first = a.run_tap[run], count = a.run_taps[run];
  const int chunk = k16 / a.steps, step = k16 % a.steps;
  return first * (a.k8 / 2) + (chunk * count + tap - first) * a.steps + step;
}

// Filters: [group][column tile][stage][tap][step of 16][block of eight][hi columns, lo columns], 16 bytes each.
static __global__ void split_filter(const __grid_constant__ FilterArgs a, const float* __restrict__ w, uint4* __restrict__ planes,
                                    unsigned* flags) {
  const int64_t all = int64_t(a.groups) * a.column_tiles * a.all_taps * a.k8 * a.columns;
  float largest = 0.0f;
  bool bad = false;
  for (int64_t e = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; e < all; e += int64_t(gridDim.x) * blockDim.x) {
    int64_t rest = e;
    const int column = int(rest % a.columns);
    rest /= a.columns;
    const int block = int(rest % a.k8);
    rest /= a.k8;
    const int tap = int(rest % a.all_taps);
    rest /= a.all_taps;
    const int tile = int(rest % a.column_tiles), group = int(rest / a.column_tiles);
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = weight_of(a, w, group, tile, tap, 8 * block + i, column);
      largest = fmaxf(largest, fabsf(v[i])), bad = bad || v[i] != v[i];
    }
    uint4 hi, lo;
    split8(v, hi, lo);
    uint4* to = planes + (int64_t(group) * a.column_tiles + tile) * a.w_tile + int64_t(filter_block(a, tap, block / 2)) * 4 * a.columns +
                (block % 2) * 2 * a.columns;
    to[column] = hi;
    to[column + a.columns] = lo;
  }
  __syncwarp();
  tell_range(range_of(largest, bad, kWSeen), flags);
}

// --- the product ---------------------------------------------------------------------------------------------------------

namespace ptx {
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void named_barrier(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
}  // namespace ptx

struct Tile {
  int image, group, problem, column_tile, first;  // first pixel
};

__host__ __device__ inline Tile tile_of(const ProductArgs& a, int index) {
  Tile t;
  t.column_tile = index % a.column_tiles;
  index /= a.column_tiles;
  t.problem = index % a.problems;
  index /= a.problems;
  t.first = index % a.tiles * a.pixels;
  index /= a.tiles;
  t.group = index % a.groups;
  t.image = index / a.groups;
  return t;
}

// Place of a pixel's first phase within its channel of the output, or -1; `left`: how many of its phases are inside.
__host__ __device__ inline int place_of(const ProductArgs& a, const Problem& q, int pixel, int& left) {
  const int w = pixel % a.wp, rest = pixel / a.wp, h = rest % a.hp, d = rest / a.hp;
  const int od = a.ostep[0] * d + q.rd, oh = a.ostep[1] * h + q.rh, ow = a.ostep[2] * w;
  left = 0;
  if (w >= a.count[2] || od >= a.out[0] || oh >= a.out[1]) return -1;
  left = a.out[2] - ow;
  return (od * a.out[1] + oh) * a.out[2] + ow;
}

template <int N>
struct Floats;
template <>
struct Floats<1> { using type = float; };
template <>
struct Floats<2> { using type = float2; };
template <>
struct Floats<4> { using type = float4; };

// Four warps write `most` of `Columns` staged rows, `Vector` pixels per access; `places` of the 64 pixels, -1 for none.
template <int Vector, int Columns, class Epilogue>
__device__ __forceinline__ void write_lines(const float* staged, const int* places, float* lines, const float* extra, int most, int64_t volume,
                                            int warp, int lane, Epilogue epilogue) {
  using Access = typename Floats<Vector>::type;
  constexpr int kLanes = Vector == 4 ? 16 : 32, kAtOnce = 32 / kLanes, kTwice = Vector == 1 ? 2 : 1;
  const int pixel = lane % kLanes * Vector, first = warp * kAtOnce + lane / kLanes;
#pragma unroll
  for (int half = 0; half < kTwice; ++half) {
    const int place = places[pixel + 32 * half];
    if (place < 0) continue;
    const float* from = staged + first * kPitch + pixel + 32 * half;
    float* to = lines + place + first * volume;
    constexpr int kCount = Columns / (4 * kAtOnce);
    Access value[kCount];
#pragma unroll
    for (int n = 0; n < kCount; ++n) value[n] = *reinterpret_cast<const Access*>(from + 4 * kAtOnce * n * kPitch);
    if (extra) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) {
        const int c = first + 4 * kAtOnce * n;
        const float more = c < most ? extra[c] : 0.0f;
        float* each = reinterpret_cast<float*>(value + n);
#pragma unroll
        for (int v = 0; v < Vector; ++v) each[v] += more;
      }
    }
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      float* each = reinterpret_cast<float*>(value + n);
#pragma unroll
      for (int v = 0; v < Vector; ++v) each[v] = epilogue(each[v]);
      if (first + 4 * kAtOnce * n < most) *reinterpret_cast<Access*>(to) = value[n];
      to += 4 * kAtOnce * volume;
    }
  }
}

constexpr int kConsumers = 256, kProductThreads = kConsumers + 128;

// A persistent block takes tiles of 128 * kRows pixels times `Columns` columns. One thread copies stages into shared memory; two
// warpgroups of kRows times 64 pixels each multiply. `OutStep`: the stride of the last axis of a transposed form.
template <int Columns, int OutStep, int kRows, class Epilogue>
__global__ __launch_bounds__(kProductThreads, 1) void product(const __grid_constant__ ProductArgs a, const uint4* __restrict__ x,
                                                              const uint4* __restrict__ w, const float* __restrict__ bias,
                                                              float* __restrict__ out, Epilogue epilogue) {
  extern __shared__ __align__(128) unsigned char memory[];
  uint64_t* full = reinterpret_cast<uint64_t*>(memory);
  uint64_t* empty = full + 8;
  int* places = reinterpret_cast<int*>(memory + 256);                     // [warpgroup][place, left][256]
  float* staged = reinterpret_cast<float*>(memory + kHead);            // [warpgroup][column][kPitch]
  unsigned char* ring = memory + kHead + 2 * Columns * kPitch * 4;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) barrier_init(full + s, 1), barrier_init(empty + s, kConsumers / 32);
    barriers_initialised();
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int chunks = a.k8 / (2 * a.steps);
  int slot = 0;
  uint32_t parity = 0;

  if (warp >= kConsumers / 32) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == kConsumers) {
      for (int round = 0, turn = blockIdx.x; round < a.all_tiles; round += gridDim.x, turn = (turn + a.turn) % gridDim.x) {
        const int index = round + turn;
        if (index >= a.all_tiles) continue;
        const Tile t = tile_of(a, index);
        const Problem& q = a.problem[t.problem];
        const uint4* from = x + (int64_t(t.image) * a.groups + t.group) * a.k8 * 2 * a.total;
        const uint4* filters = w + (int64_t(t.group) * a.column_tiles + t.column_tile) * a.w_tile;
        for (int r = 0; r < q.runs; ++r) {
          const Run run = a.run[q.run + r];
          const int begin = t.first + run.offset;
          const int length = min(a.range, a.total - begin);
          const uint32_t filter_bytes = run.taps * a.steps * 64 * Columns;
          const uint32_t x_bytes = length > 0 ? length * 16 : 0;
          for (int chunk = 0; chunk < chunks; ++chunk) {
            barrier_wait(empty + slot, parity ^ 1);
            unsigned char* to = ring + slot * a.stage_bytes;
            barrier_expect(full + slot, filter_bytes + 4 * a.steps * x_bytes);
            bulk_copy(to + a.x_bytes, filters + (int64_t(run.tap) * (a.k8 / 2) + chunk * run.taps * a.steps) * 4 * Columns,
                           filter_bytes, full + slot);
            if (x_bytes)
              for (int b = 0; b < 4 * a.steps; ++b)
                bulk_copy(to + b * a.range * 16, from + int64_t(chunk * 4 * a.steps + b) * a.total + begin, x_bytes, full + slot);
            if (++slot == a.stages) slot = 0, parity ^= 1;
          }
        }
      }
    }
  } else {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int group = warp / 4;  // warpgroup
  staged += group * Columns * kPitch;
  places += group * 512;
  const int thread = threadIdx.x % 128;
  const uint64_t x_descriptor = (uint64_t(8) << 32) | (uint64_t(2 * a.range) << 16);
  const uint64_t w_descriptor = (uint64_t(8) << 32) | (uint64_t(2 * Columns) << 16);
  const uint32_t ring_units = shared_address(ring) >> 4;
  // hi*hi, then hi*lo; lo*hi. Sums of products of different widths may not share registers: they would wait for each other.
  float part[Columns], other[Columns / 2];
#pragma unroll
  for (int i = 0; i < Columns; ++i) part[i] = 0.0f;
#pragma unroll
  for (int i = 0; i < Columns / 2; ++i) other[i] = 0.0f;

  for (int round = 0, turn = blockIdx.x; round < a.all_tiles; round += gridDim.x, turn = (turn + a.turn) % gridDim.x) {
    const int index = round + turn;
    if (index >= a.all_tiles) continue;
    const Tile t = tile_of(a, index);
    const Problem& q = a.problem[t.problem];
    ptx::named_barrier(1 + group, 128);
#pragma unroll
    for (int i = thread; i < 64 * kRows; i += 128) {
      int left;
      places[i] = place_of(a, q, t.first + group * kRows * 64 + i, left);
      places[256 + i] = left;
    }
    float sums[kRows][Columns / 2];
#pragma unroll
    for (int m = 0; m < kRows; ++m)
#pragma unroll
      for (int i = 0; i < Columns / 2; ++i) sums[m][i] = 0.0f;

    for (int r = 0; r < q.runs; ++r) {
      const int first = a.run[q.run + r].tap, taps = a.run[q.run + r].taps;
      for (int chunk = 0; chunk < chunks; ++chunk) {
        barrier_wait(full + slot, parity);
        const uint32_t base = ring_units + (slot * a.stage_bytes >> 4);
#pragma unroll
        for (int m = 0; m < kRows; ++m) {
          uint64_t wd = w_descriptor | (base + (a.x_bytes >> 4));
          const uint64_t xd = x_descriptor | (base + (group * kRows + m) * 64);
          int add = 0, tap = 0;
          ptx::wgmma_fence();
          do {
            uint64_t at = xd + a.shift[first + tap];
            int s = 0;
            do {
              WgmmaF16<2 * Columns>::run(part, at, wd, add);
              WgmmaF16<Columns>::run(other, at + a.range, wd, add);
              add = 1;
              at += 4 * a.range;
              wd += 4 * Columns;
            } while (++s < a.steps);
          } while (++tap < taps);
          ptx::wgmma_commit();
          ptx::wgmma_wait<0>();
#pragma unroll
          for (int i = 0; i < Columns / 2; ++i) sums[m][i] += fmaf(part[Columns / 2 + i] + other[i], kLoUnscale, part[i]);
        }
        if (lane == 0) barrier_arrive(empty + slot);
        if (++slot == a.stages) slot = 0, parity ^= 1;
      }
    }

    // Through shared memory, so that neighbours in a warp write neighbours in memory.
    float* to = out + t.image * a.image_out;
    const int volume = a.out[0] * a.out[1] * a.out[2];
#pragma unroll
    for (int m = 0; m < kRows; ++m) {
      ptx::named_barrier(1 + group, 128);
      const int row = 16 * (warp % 4) + lane / 4;
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) staged[(8 * j + 2 * (lane % 4) + e % 2) * kPitch + row + 8 * (e / 2)] = sums[m][4 * j + e];
      ptx::named_barrier(1 + group, 128);
      const int channel = t.column_tile * a.couts, most = min(a.couts, a.co - channel);
      const float* extra = bias ? bias + t.group * a.co + channel : nullptr;
      float* lines = to + int64_t(t.group * a.co + channel) * volume;
      if (OutStep > 1) {
        int place[2 * OutStep];
#pragma unroll
        for (int i = 0; i < 2 * OutStep; ++i) {
          const int e = lane + 32 * i, p = e / OutStep, phase = e % OutStep;
          place[i] = phase < places[256 + 64 * m + p] ? places[64 * m + p] + phase : -1;
        }
#pragma unroll 2
        for (int c = warp % 4; c < most; c += 4) {
          float value[2 * OutStep];
#pragma unroll
          for (int i = 0; i < 2 * OutStep; ++i) {
            const int e = lane + 32 * i, p = e / OutStep, phase = e % OutStep;
            const int column = a.phase[phase];
            value[i] = column >= 0 ? staged[(column * a.couts + c) * kPitch + p] : 0.0f;
          }
          const float more = extra ? extra[c] : 0.0f;
          float* line = lines + int64_t(c) * volume;
#pragma unroll
          for (int i = 0; i < 2 * OutStep; ++i)
            if (place[i] >= 0) line[place[i]] = epilogue(value[i] + more);
        }
      } else if (a.vector == 4) {
        write_lines<4, Columns>(staged, places + 64 * m, lines, extra, most, volume, warp % 4, lane, epilogue);
      } else if (a.vector == 2) {
        write_lines<2, Columns>(staged, places + 64 * m, lines, extra, most, volume, warp % 4, lane, epilogue);
      } else {
        write_lines<1, Columns>(staged, places + 64 * m, lines, extra, most, volume, warp % 4, lane, epilogue);
      }
    }
  }
  }
}

// --- launching -------------------------------------------------------------------------------------------------------------

// Cycles a plan takes, roughly: to choose how many axes to fold.
inline double cycles_of(const Plan& p, const Form& f) {
  double blocks = 0;
  for (int q = 0; q < p.product.problems; ++q) blocks += double(p.product.problem[q].taps) * (p.product.k8 / 2);
  const double each = std::max(1.5 * p.columns, 32 + 0.75 * p.columns) * (p.product.pixels / 64);
  const double tiles = double(p.product.tiles) * f.images * f.groups * p.product.column_tiles;
  return 1.15 * blocks * each * tiles / 132 + double(p.x_units) * 16 * 2 / 2300;
}

// The plan for a form with tiles of at most `columns` columns.
inline Plan best_plan(const Form& f, int columns, int rows = 4, Tuning tuning = Tuning()) {
  Plan best = {};
  if (int64_t(f.images) * f.groups > 65535) return best;  // a grid has no more rows
  // Of equal plans those are faster that fold the width: their planes are as wide as the output.
  constexpr int kFolds[] = {0, 4, 6, 7, 5, 2, 3, 1};
  for (int i = 0; i < (f.ci >= 16 ? 1 : 8); ++i) {
    const Plan p = make_plan(f, kFolds[i], columns, tuning.span, tuning.steps, 227 * 1024, tuning.most_taps, 128 * rows);
    if (p.ok && (!best.ok || cycles_of(p, f) < cycles_of(best, f))) best = p;
  }
  return best;
}

constexpr int64_t kFlagUnits = 16;  // 256 bytes

inline int64_t workspace_of(const Plan& p) { return p.ok ? (kFlagUnits + p.w_units + p.x_units) * 16 : 0; }

template <class Epilogue>
int launch_direct(const Form& f, const float* x, const float* w, const float* bias, float* out, const unsigned* flags,
                  cudaStream_t stream, Epilogue epilogue) {
  direct<<<132 * 8, 256, 0, stream>>>(f, x, w, bias, out, flags, epilogue);
  return int(cudaGetLastError());
}

// A convolution with tiles of `Columns` columns (see make_plan); `OutStep` is the stride of the last axis of a transposed
// form, else 1. Forms the plan cannot express take the plain kernel.
template <int Columns, int OutStep, int Rows = 4, class Epilogue = Identity>
int launch_convolution(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t stream,
                       Epilogue epilogue = Epilogue(), Tuning tuning = Tuning()) {
  if (int64_t(f.images) * f.groups * f.co * f.out_volume() == 0) return 0;
  const Plan p = best_plan(f, Columns, Rows, tuning);
  if (!p.ok || p.columns != Columns || p.product.ostep[2] != OutStep || !workspace)
    return launch_direct(f, x, w, bias, out, nullptr, stream, epilogue);
  uint4* units = static_cast<uint4*>(workspace);
  unsigned* flags = reinterpret_cast<unsigned*>(units);
  uint4* w_planes = units + kFlagUnits;
  uint4* x_planes = w_planes + p.w_units;
  cudaMemsetAsync(flags, 0, 256, stream);
  split_filter<<<264, 128, 0, stream>>>(p.filter, w, w_planes, flags);
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const int wanted = (p.input.total + kSplitThreads - 1) / kSplitThreads;
  const int images = f.images * f.groups;
  const dim3 grid(std::max(1, std::min(wanted, processors * 32 / std::min(images, processors * 32) + 1)), images);
  if (p.input.folded)
    split_input<true><<<grid, kSplitThreads, 0, stream>>>(p.input, x, x_planes, flags);
  else
    split_input<false><<<grid, kSplitThreads, 0, stream>>>(p.input, x, x_planes, flags);
  auto* kernel = product<Columns, OutStep, Rows, Epilogue>;
  const int bytes = kHead + 2 * Columns * kPitch * 4 + p.product.stages * p.product.stage_bytes;
  cudaError_t state = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (state != cudaSuccess) return int(state);
  kernel<<<std::min(processors, p.product.all_tiles), kProductThreads, bytes, stream>>>(p.product, x_planes, w_planes, bias, out, epilogue);
  state = cudaGetLastError();
  if (state != cudaSuccess) return int(state);
  return launch_direct(f, x, w, bias, out, flags, stream, epilogue);
}

}  // namespace conv
}  // namespace warpsmith
