// Convolutions on the CPU as products of windows laid out as a matrix: any convolution that cpu/convolution.h computes.
//
// The terms of a run of outputs are copied to a matrix [terms x outputs] in the memory of a thread, a part of the terms
// at a time, and multiplied by the packed weights of many output channels. Every input is copied once for each tap that
// meets it. In return there is no padded grid, a run may go through several images, and no output at the end of a row
// is computed in vain: that counts where images are small and output channels many.
#pragma once
#include <warpsmith/cpu/convolution.h>

#ifndef TUNE_TILES
#define TUNE_TILES 4  // of a run
#endif
#ifndef TUNE_TERMS
#define TUNE_TERMS 128  // of a matrix: those of one tile stay in the first-level cache
#endif

namespace warpsmith::conv {

constexpr int64_t kRun = TUNE_TILES * kWidth;  // outputs of a run
constexpr int64_t kPart = TUNE_TERMS;
constexpr int64_t kShare = 256;  // output channels that use a matrix before it is overwritten, at most

// The same number in `workspace_bytes` and `launch`, whatever has happened in between.
inline int windows_threads() {
  static const int threads = omp_get_max_threads();
  return threads;
}

// Of a thread: the places that taps meet, the matrix, the sums.
inline int64_t windows_floats(const Form& f) { return (f.kernel.volume() + kPart + kShare) * kRun; }

inline Plan windows_plan(const Form& f) {
  Plan p = plan_of(f);
  p.copies = false;
  return p;
}

inline int64_t windows_workspace(const Form& f) {
  static char none;
  if (!f.out.volume()) return 0;
  return places_of(f, windows_plan(f), &none).bytes + 64 + windows_threads() * windows_floats(f) * 4;
}

// A run of outputs of one depth of a phase, in the flattened rows of several images.
struct Outputs {
  int64_t depth, rows, columns, begin, end;
};

// Where a tap meets each output of a run, counted from the channel of the run's first image; -1: outside, and in the
// rest of the last vector.
inline void meet(const Form& f, int64_t tap, const Outputs& run, int32_t* places) {
  const Axes step = f.transposed ? Axes{1, 1, 1} : f.stride;
  const Tap along_d = tap_of(f, 0, tap / f.kernel[2] / f.kernel[1]);
  const Tap along_h = tap_of(f, 1, tap / f.kernel[2] % f.kernel[1]), along_w = tap_of(f, 2, tap % f.kernel[2]);
  const int64_t d = (run.depth + along_d.shift) * step[0] + along_d.in_phase, s = step[2];
  const int64_t first = along_w.shift * s + along_w.in_phase;  // of the input, for the first output of a row
  const int64_t image = f.groups * f.ci * f.in.volume(), origin = run.begin / run.columns / run.rows;
  int32_t* const last = places + (run.end - run.begin + kLanes - 1) / kLanes * kLanes;
  for (int64_t at = run.begin; at < run.end;) {
    const int64_t row = at / run.columns, column = at % run.columns;
    const int64_t count = std::min(run.columns - column, run.end - at);
    const int64_t h = (row % run.rows + along_h.shift) * step[1] + along_h.in_phase;
    const bool inside = d >= 0 && d < f.in[0] && h >= 0 && h < f.in[1];
    const int64_t above = (row / run.rows - origin) * image + (d * f.in[1] + h) * f.in[2];
    const int32_t line = inside ? static_cast<int32_t>(above) : 0;
    const int32_t width = inside ? static_cast<int32_t>(f.in[2]) : 0;
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) {
      const int32_t w = static_cast<int32_t>(first + (column + j) * s);
      places[j] = w >= 0 && w < width ? line + w : -1;
    }
    places += count;
    at += count;
  }
  while (places < last) *places++ = -1;
}

// Lays out terms [first, first + count) of a run of outputs: [tile][term][output].
inline void lay_out(const float* x, int64_t volume, const int32_t* places, int64_t taps, int64_t first, int64_t count,
                    int64_t outputs, float* matrix) {
  for (int64_t k = 0; k < count; ++k, matrix += kWidth) {
    const float* channel = x + (first + k) / taps * volume;
    const int32_t* from = places + (first + k) % taps * kRun;
    for (int64_t at = 0; at < outputs; at += kWidth) {
      const int64_t width = std::min<int64_t>(kWidth, (outputs - at + kLanes - 1) / kLanes * kLanes);
      float* to = matrix + at * kPart;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) to[j] = from[at + j] >= 0 ? channel[from[at + j]] : 0.f;
    }
  }
}

// Images whose outputs share runs: all, unless places in them do not fit into 32 bits.
inline int64_t images_of_runs(const Form& f, const Plan& p) {
  const int64_t together = std::min(f.images, kRun / std::max<int64_t>(1, p.runs[1] * p.runs[2]) + 2);
  return together * f.groups * f.ci * f.in.volume() < (int64_t{1} << 31) ? f.images : 1;
}

// One work item: a run of outputs of one depth of one phase, for some output channels of a group.
inline void sum_windows(const Form& f, const Plan& p, const Places& at, const float* x, const float* bias, float* out,
                        float* memory, int64_t images, int64_t group, int64_t item, int64_t runs, int64_t chunks,
                        int64_t share) {
  const int64_t chunk = item % chunks, run = item / chunks % runs, line = item / chunks / runs;
  const int64_t depth = line % p.runs[0], phase = line / p.runs[0];
  const int64_t first = chunk * share, last = std::min(first + share, f.co);
  const int64_t rw = phase % p.out_phases[2], rh = phase / p.out_phases[2] % p.out_phases[1];
  const int64_t d = phase / p.out_phases[2] / p.out_phases[1] + depth * p.out_phases[0];
  const int64_t rows = (f.out[1] - rh + p.out_phases[1] - 1) / p.out_phases[1];
  const int64_t columns = (f.out[2] - rw + p.out_phases[2] - 1) / p.out_phases[2], plane = rows * columns;
  if (d >= f.out[0] || first >= last || rows <= 0 || columns <= 0) return;
  const int64_t start = run * kRun, end = std::min(start + kRun, images * plane);
  if (start >= end) return;
  const int64_t begin = at.first[phase], taps = at.first[phase + 1] - begin, terms = f.ci * taps;
  const float* weights = at.weights + f.co * f.ci * (group * f.kernel.volume() + begin);
  const float* channels = x + (start / plane * f.groups + group) * f.ci * f.in.volume();
  Target to{};
  to.volume = f.out.volume();
  to.columns = columns;
  to.row_step = p.out_phases[1] * f.out[2];
  to.step = p.out_phases[2];
  to.bias = bias ? bias + group * f.co : nullptr;
  int32_t* places = reinterpret_cast<int32_t*>(memory);
  float *matrix = memory + f.kernel.volume() * kRun, *sums = matrix + kPart * kRun;
  for (int64_t t = 0; t < taps; ++t) meet(f, at.taps[begin + t], {depth, rows, columns, start, end}, places + t * kRun);
  const int64_t parts = std::max<int64_t>(1, (terms + kPart - 1) / kPart), part = (terms + parts - 1) / parts;
  for (int64_t n = 0; n < parts; ++n) {
    const int64_t from = std::min(n * part, terms), count = std::min(part, terms - from);
    lay_out(channels, f.in.volume(), places, taps, from, count, end - start, matrix);
    float* sum = sums;
    for (int64_t q = start; q < end; q += kWidth) {
      const int64_t width = std::min<int64_t>(kWidth, end - q);
      for (int64_t channel = first, block; channel < last; channel += block, sum += block * kWidth) {
        block = block_of(channel, f.co);
        sum_block(block, static_cast<int>((width + kLanes - 1) / kLanes), weights + channel * terms + from * block,
                  matrix + (q - start) * kPart, at.distances, count, sum, n == 0);
        if (n + 1 < parts) continue;
        for (int64_t image = q / plane; image * plane < q + width; ++image) {
          const int64_t above = image * plane;
          to.out = out + (image * f.groups + group) * f.co * to.volume + (d * f.out[1] + rh) * f.out[2] + rw;
          store_tile(to, columns, channel, block, sum, q - above, std::max<int64_t>(q - above, 0),
                     std::min(q + width - above, plane));
        }
      }
    }
  }
}

inline int run_windows(const Form& f, const float* x, const float* weights, const float* bias, float* out,
                       void* workspace) {
  if (f.images * f.groups * f.co * f.out.volume() == 0) return 0;
  const Plan p = windows_plan(f);
  const Places at = places_of(f, p, workspace);
  list_taps(f, p, at);
  for (int64_t k = 0; k < f.ci * f.kernel.volume(); ++k) at.distances[k] = k * kWidth;
  const uintptr_t behind = reinterpret_cast<uintptr_t>(workspace) + at.bytes;
  float* memory = reinterpret_cast<float*>((behind + 63) / 64 * 64);
  const int64_t phases = p.out_phases.volume(), blocks = (f.co + kChannels - 1) / kChannels;
  const int64_t images = images_of_runs(f, p), units = f.images / images * f.groups;
  const int64_t runs = (images * p.runs[1] * p.runs[2] + kRun - 1) / kRun, lines = phases * p.runs[0];
  const bool shared = f.images * f.groups * f.co * f.ci * f.kernel.volume() * p.runs.volume() > kAlone;
  const int64_t wanted = shared ? 4 * windows_threads() : 1, least = (f.co + kShare - 1) / kShare;
  const int64_t parts = std::clamp<int64_t>(wanted / std::max<int64_t>(1, units * lines * runs), least, blocks);
  const int64_t share = (blocks + parts - 1) / parts * kChannels, chunks = (f.co + share - 1) / share;
  const int64_t items = lines * runs * chunks;
#pragma omp parallel num_threads(windows_threads()) if (shared)
  {
#pragma omp for collapse(3) schedule(static)
    for (int64_t group = 0; group < f.groups; ++group)
      for (int64_t phase = 0; phase < phases; ++phase)
        for (int64_t block = 0; block < blocks; ++block) pack_weights(f, at, weights, group, phase, block * kChannels);
#pragma omp for schedule(dynamic)
    for (int64_t item = 0; item < units * items; ++item) {
      const int64_t unit = item / items, first = unit / f.groups * images;
      sum_windows(f, p, at, x + first * f.groups * f.ci * f.in.volume(), bias,
                  out + first * f.groups * f.co * f.out.volume(), memory + omp_get_thread_num() * windows_floats(f),
                  images, unit % f.groups, item % items, runs, chunks, share);
    }
  }
  return 0;
}

}  // namespace warpsmith::conv
