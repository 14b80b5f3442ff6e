// Convolutions on the CPU: 1 to 3 axes, forward and transposed, any stride, padding, dilation and groups.
//
// Every convolution is computed as one or more convolutions of stride 1 without padding:
// - The input is copied to a padded grid. A forward convolution of stride s takes every s-th element of an axis, so that
//   the copy has one grid per phase of the stride. Without padding and stride the input itself is the grid.
// - The output of a transposed convolution of stride s has s phases along an axis. Each phase is a convolution with the
//   taps that reach it: no zero is multiplied, and nothing is added to memory.
// In a grid a tap is a constant distance, so a run of outputs along the flattened rows is a sum of runs of the grid
// times one weight each. A tile of sums (output channels x a run of outputs) stays in vector registers. The outputs at
// the ends of rows that belong to no pixel are computed and dropped.
//
// On small maps these outputs, and taps that meet nothing but padding, can be most of the work. There the channels of a
// pixel are copied side by side if that should take less time: a tile is some neighbouring outputs of a row times vectors
// of output channels, and taps whose row is outside the input are left out.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <warpsmith/cpu/product.h>

namespace warpsmith::conv {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kChannels = 8;
#elif defined(__AVX__)
constexpr int kLanes = 8, kChannels = 4;
#else
constexpr int kLanes = 4, kChannels = 8;
#endif
constexpr int kVectors = 3;                  // of a tile, so that its sums fill the registers
constexpr int kWidth = kVectors * kLanes;    // outputs of a tile
constexpr int kTiles = 8;                    // tiles that use a block of weights while it is in the cache
constexpr int64_t kTerms = 256;              // terms that are added up in registers: more would cost accuracy
constexpr int64_t kBatchBytes = 4 << 20;     // of grids that are filled before they are read
constexpr int64_t kAlone = 1 << 22;          // products that one thread computes before others would have begun

typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef float Loose __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

struct Axes {
  int64_t at[3];  // depth, height, width
  int64_t operator[](int axis) const { return at[axis]; }
  int64_t& operator[](int axis) { return at[axis]; }
  int64_t volume() const { return at[0] * at[1] * at[2]; }
};

struct Form {
  int64_t images, groups, ci, co;  // channels of a group
  Axes in, kernel, stride, padding, dilation;
  bool transposed;
  Axes out;
};

inline Form make_form(int64_t images, int64_t groups, int64_t ci, int64_t co, Axes in, Axes kernel, Axes stride,
                      Axes padding, Axes dilation, bool transposed, Axes output_padding) {
  Form f{images, groups, ci, co, in, kernel, stride, padding, dilation, transposed, {}};
  for (int a = 0; a < 3; ++a) {
    const int64_t reach = dilation[a] * (kernel[a] - 1) + 1;
    f.out[a] = transposed ? (in[a] - 1) * stride[a] - 2 * padding[a] + reach + output_padding[a]
                          : (in[a] + 2 * padding[a] - reach) / stride[a] + 1;
    f.out[a] = std::max<int64_t>(f.out[a], 0);
  }
  return f;
}

inline int64_t floor_div(int64_t a, int64_t b) { return b == 1 ? a : a / b - (a % b < 0); }

// Where a tap of an axis reads, for the outputs phase + q * out_phases.
struct Tap {
  int64_t out_phase, in_phase, shift;  // at place q + shift of the grid of the phase
};

inline Tap tap_of(const Form& f, int axis, int64_t k) {
  const int64_t s = f.stride[axis];
  if (!f.transposed) {
    const int64_t distance = k * f.dilation[axis] - f.padding[axis];
    return {0, distance - floor_div(distance, s) * s, floor_div(distance, s)};
  }
  const int64_t distance = f.padding[axis] - k * f.dilation[axis];
  const int64_t phase = -distance - floor_div(-distance, s) * s;
  return {phase, 0, (phase + distance) / s};
}

struct Plan {
  Axes low, grid;             // the first place of a grid in the input, in steps of the stride; extents of a grid
  Axes in_phases, out_phases;
  Axes runs;                  // outputs of the first phase
  bool copies;                // false: the input is the grid
  int64_t unit;               // elements of the grids of one group of channels
  int64_t units;              // groups whose grids are filled together
};

inline Plan plan_of(const Form& f) {
  Plan p{};
  p.copies = false;
  for (int a = 0; a < 3; ++a) {
    int64_t low = 0, high = 0;
    for (int64_t k = 0; k < f.kernel[a]; ++k) {
      const int64_t shift = tap_of(f, a, k).shift;
      low = k ? std::min(low, shift) : shift;
      high = k ? std::max(high, shift) : shift;
    }
    p.in_phases[a] = f.transposed ? 1 : std::min(f.stride[a], f.dilation[a] * (f.kernel[a] - 1) + 1);
    if (!f.transposed && p.in_phases[a] != f.stride[a] && f.padding[a]) p.in_phases[a] = f.stride[a];
    p.out_phases[a] = f.transposed ? f.stride[a] : 1;
    p.runs[a] = (f.out[a] + p.out_phases[a] - 1) / p.out_phases[a];
    p.low[a] = low;
    p.grid[a] = p.runs[a] + high - low;
    p.copies |= (!f.transposed && f.stride[a] > 1) || low != 0 || p.grid[a] != f.in[a];
  }
  // The last tile of the shortest phase would read behind the input.
  p.copies |= (f.out[1] / p.out_phases[1] - 1) * p.grid[2] + f.out[2] / p.out_phases[2] < kWidth;
  p.unit = f.ci * p.in_phases.volume() * p.grid.volume();
  p.units = std::clamp<int64_t>(kBatchBytes / 4 / std::max<int64_t>(p.unit, 1), 1, f.images * f.groups);
  return p;
}

// --- workspace: packed weights, distances of terms, taps, grids ---

struct Places {
  float* weights;       // by group, phase, block of channels: terms x channels of the block
  int64_t* distances;   // by phase: of every term in the grids of a group
  int64_t* taps;        // by phase: numbers of the taps
  int64_t* first;       // of each phase, among all taps
  float* grids;
  int64_t bytes;
};

inline Places places_of(const Form& f, const Plan& p, void* workspace) {
  Places found{};
  const int64_t taps = f.kernel.volume(), phases = p.out_phases.volume();
  char* base = static_cast<char*>(workspace);
  int64_t at = 0;
  const auto take = [&](int64_t bytes) {
    char* place = base + at;
    at += (bytes + 63) / 64 * 64;
    return place;
  };
  found.weights = reinterpret_cast<float*>(take(f.groups * f.co * f.ci * taps * 4));
  found.distances = reinterpret_cast<int64_t*>(take(f.ci * taps * 8));
  found.taps = reinterpret_cast<int64_t*>(take(taps * 8));
  found.first = reinterpret_cast<int64_t*>(take((phases + 1) * 8));
  found.grids = reinterpret_cast<float*>(take(p.copies ? (p.units * p.unit + 2 * kWidth) * 4 : 0));
  found.bytes = at;
  return found;
}

// --- small maps: channels side by side ---

constexpr int kPixels = products::kRows, kColumns = products::kWidth;  // of a tile
constexpr int kExchanged = products::kLanes >= 8 ? 8 : 4;  // channels that are laid out together
constexpr int64_t kLeastChannels = 8;
constexpr double kSpread = 6;   // to add a value to a row of outputs takes as long as so many products
constexpr double kFlush = 4;  // a tap costs as much as so many channels more: its sums are added in memory

// Where a tap of an axis reads, for output q of its phase: q * step + first.
struct Access {
  int64_t phase, step, first;
};

inline Access access_of(const Form& f, int axis, int64_t k) {
  const Tap tap = tap_of(f, axis, k);
  const int64_t step = f.transposed ? 1 : f.stride[axis];
  return {tap.out_phase, step, tap.shift * step + tap.in_phase};
}

struct Rows {
  int64_t left, width;  // pixels of a row of the input with zeros at both ends
  int64_t channels;     // of a pixel, with some more to fill vectors
  int64_t blocks;       // of output channels
  int64_t together;     // images' groups whose rows are filled together
  int64_t row() const { return width * channels; }
};

inline Rows rows_of(const Form& f, const Plan& p) {
  Rows found{};
  int64_t low = 0, high = f.in[2] - 1;
  for (int64_t k = 0; k < f.kernel[2]; ++k) {
    const Access w = access_of(f, 2, k);
    low = std::min(low, w.first);
    high = std::max(high, w.first + (p.runs[2] - 1) * w.step);
  }
  found.left = -low;
  found.width = high - low + 1;
  found.channels = (f.ci + 7) / 8 * 8;
  found.blocks = products::ceil_div(f.co, kColumns);
  const int64_t unit = f.in[0] * f.in[1] * found.row();
  const int64_t all = std::max<int64_t>(1, f.images * f.groups);
  found.together = std::clamp<int64_t>(kBatchBytes / 4 / std::max<int64_t>(unit, 1), 1, all);
  return found;
}

// Output channels of a block, in whole vectors: as many in each block.
inline int64_t block_columns(const Form& f, const Rows& rows) {
  return products::ceil_div(products::ceil_div(f.co, products::kLanes), rows.blocks) * products::kLanes;
}

inline int64_t filter_bytes(const Form& f, const Rows& rows) {
  return f.groups * rows.blocks * f.ci * f.kernel.volume() * block_columns(f, rows) * 4;
}

// Pairs of an output and a tap of the first two axes that meet a row of the input.
inline double pairs_of_rows(const Form& f, const Plan& p) {
  double found = 1;
  for (int a = 0; a < 2; ++a) {
    int64_t pairs = 0;
    for (int64_t k = 0; k < f.kernel[a]; ++k) {
      const Access tap = access_of(f, a, k);
      const int64_t count = (f.out[a] - tap.phase + p.out_phases[a] - 1) / p.out_phases[a];
      const int64_t begin = std::max<int64_t>(0, floor_div(-tap.first + tap.step - 1, tap.step));
      pairs += std::max<int64_t>(0, std::min(count, floor_div(f.in[a] - 1 - tap.first, tap.step) + 1) - begin);
    }
    found *= static_cast<double>(pairs);
  }
  return found;
}

inline int64_t whole_vectors(int64_t count) { return products::ceil_div(count, products::kLanes) * products::kLanes; }

// Output channels of a tap where the taps of a row are output channels.
inline int64_t spread_channels(const Form& f) { return (f.co + kExchanged - 1) / kExchanged * kExchanged; }

// What each of the three ways takes, in products of one output channel and one input channel.
inline double direct_cost(const Form& f, const Plan& p) {
  const int64_t longest = (p.runs[1] - 1) * p.grid[2] + p.runs[2];
  return static_cast<double>((longest + kLanes - 1) / kLanes * kLanes * p.runs[0] * f.kernel.volume()) *
         static_cast<double>(f.co * f.ci);
}

inline double channels_cost(const Form& f, const Plan& p) {
  return pairs_of_rows(f, p) * static_cast<double>(p.runs[2] * f.kernel[2] * whole_vectors(f.co)) *
         (static_cast<double>(f.ci) + kFlush);
}

inline double spread_cost(const Form& f, const Plan& p) {
  const double values = static_cast<double>(f.in[2] * whole_vectors(f.kernel[2] * spread_channels(f)));
  return values * (pairs_of_rows(f, p) * (static_cast<double>(f.ci) + kFlush) +
                   kSpread * static_cast<double>(f.out[0] * f.out[1]));
}

// True if this should take less time, whatever the number of images.
inline bool by_channels(const Form& f, const Plan& p) {
  if (f.ci < kLeastChannels || f.co < products::kLanes) return false;
  return channels_cost(f, p) < 0.85 * direct_cost(f, p);
}

// True if the taps of a row of a transposed convolution should be further output channels: each pixel of the input is
// multiplied by all of them, and what they give is added to the row of outputs afterwards. No zero is multiplied, and
// tiles are wide where output channels are few; elsewhere the sums of single outputs are as fast.
inline bool spreads(const Form& f, const Plan& p) {
  if (!f.transposed || f.kernel[2] == 1 || f.ci < kLeastChannels || f.co < kExchanged / 2) return false;
  if (f.co > products::kLanes && f.stride[2] == 1) return false;
  return spread_cost(f, p) < 0.85 * std::min(direct_cost(f, p), channels_cost(f, p));
}

// The convolution along the first two axes only.
inline Form spread_form(const Form& f) {
  Form found = f;
  found.co = spread_channels(f) * f.kernel[2];
  found.kernel[2] = found.stride[2] = found.dilation[2] = 1;
  found.padding[2] = 0;
  found.out[2] = f.in[2];
  return found;
}

// The same number in `workspace_of` and `run_convolution`, whatever has happened in between.
inline int64_t list_bytes(const Form& f) {
  const int64_t accesses = (f.kernel[0] + f.kernel[1] + f.kernel[2]) * 24;
  return (products::thread_count() * f.kernel.volume() * 16 + accesses + 63) / 64 * 64;
}

inline int64_t channels_workspace(const Form& f, const Plan& p) {
  const Rows rows = rows_of(f, p);
  return 64 + list_bytes(f) + filter_bytes(f, rows) + rows.together * f.in[0] * f.in[1] * rows.row() * 4;
}

// The weights of a block of output channels: [tap][input channel][output channel].
inline void pack_filters(const Form& f, const float* weights, int64_t group, int64_t first, int64_t width, float* to) {
  const int64_t taps = f.kernel.volume();
  for (int64_t j = 0; j < width; j += kExchanged) {
    const int64_t channel = std::min(first + j, f.co - 1), line = f.transposed ? taps : f.ci * taps;
    for (int64_t c = 0; c < f.ci; ++c) {
      const int64_t filter = f.transposed ? (group * f.ci + c) * f.co + channel : (group * f.co + channel) * f.ci + c;
      products::turn<kExchanged>(weights + filter * taps, line, f.co - channel, taps, to + c * width + j, f.ci * width);
    }
  }
}

// One row of the input with the channels of each pixel side by side.
inline void fill_row(const Form& f, const Rows& rows, const float* from, float* to) {
  std::memset(to, 0, rows.left * rows.channels * 4);
  float* const inside = to + rows.left * rows.channels;
  for (int64_t c = 0; c < rows.channels; c += kExchanged) {
    const int64_t channel = std::min(c, f.ci - 1);
    products::turn<kExchanged>(from + channel * f.in.volume(), f.in.volume(), f.ci - channel, f.in[2], inside + c,
                                    rows.channels);
  }
  std::memset(inside + f.in[2] * rows.channels, 0, (rows.width - rows.left - f.in[2]) * rows.channels * 4);
}

// Where a tap reads, from the first output of a row on, and its weights: in elements.
struct Term {
  int64_t from, filter;
};

// to[i][j] = or += the sum over taps and channels of grid[tap][i][channel] * filters[tap][channel][j].
using SumTaps = void (*)(const float* grid, int64_t step, const float* filters, int64_t width, const Term* taps,
                         int64_t count, int64_t channels, float* to, bool fresh);

template <int M, int V>
void sum_taps(const float* grid, int64_t step, const float* filters, int64_t width, const Term* taps, int64_t count,
              int64_t channels, float* to, bool fresh) {
  Vector sum[M][V] = {};
  for (int64_t n = 0; n < count; ++n) {
    const float *from = grid + taps[n].from, *weights = filters + taps[n].filter;
    for (int64_t c = 0; c < channels; ++c, weights += width) {
      Vector values[V];
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) values[v] = *reinterpret_cast<const Loose*>(weights + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const float factor = from[i * step + c];
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) sum[i][v] += factor * values[v];
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i, to += kColumns) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      Vector* place = reinterpret_cast<Vector*>(to + v * kLanes);
      *place = fresh ? sum[i][v] : *place + sum[i][v];
    }
  }
}

template <int M>
inline SumTaps sum_taps_of(int64_t rows, int64_t vectors) {
  if constexpr (M > 1) {
    if (rows < M) return sum_taps_of<M - 1>(rows, vectors);
  }
  return vectors == 1 ? sum_taps<M, 1> : vectors == 2 ? sum_taps<M, 2> : sum_taps<M, 3>;
}

// Where the taps of each axis read, computed once: divisions take as long as many products.
struct Accesses {
  const Access* axis[3];
};

// The taps of a phase of the last axis that meet a row of the input, for a row of outputs.
inline int64_t list_terms(const Form& f, const Plan& p, const Rows& rows, const Accesses& at, int64_t width, int64_t d,
                          int64_t h, int64_t phase, Term* list) {
  const int64_t qd = d / p.out_phases[0], qh = h / p.out_phases[1], rd = d % p.out_phases[0], rh = h % p.out_phases[1];
  int64_t count = 0;
  for (int64_t kd = 0; kd < f.kernel[0]; ++kd) {
    const Access& along_d = at.axis[0][kd];
    const int64_t in_d = qd * along_d.step + along_d.first;
    if (along_d.phase != rd || in_d < 0 || in_d >= f.in[0]) continue;
    for (int64_t kh = 0; kh < f.kernel[1]; ++kh) {
      const Access& along_h = at.axis[1][kh];
      const int64_t in_h = qh * along_h.step + along_h.first;
      if (along_h.phase != rh || in_h < 0 || in_h >= f.in[1]) continue;
      const int64_t row = (in_d * f.in[1] + in_h) * rows.row(), first = (kd * f.kernel[1] + kh) * f.kernel[2];
      for (int64_t kw = 0; kw < f.kernel[2]; ++kw)
        if (at.axis[2][kw].phase == phase)
          list[count++] = {row + (rows.left + at.axis[2][kw].first) * rows.channels, (first + kw) * f.ci * width};
    }
  }
  return count;
}

// One row of outputs of a block of output channels.
inline void sum_row(const Form& f, const Plan& p, const Rows& rows, const Accesses& at, const float* grid,
                    const float* filters, const float* bias, int64_t first, int64_t d, int64_t h, Term* list, float* out,
                    float* values = nullptr) {
  alignas(64) float tile[kPixels * kColumns];
  const int64_t width = block_columns(f, rows), kept = std::min<int64_t>(width, f.co - first);
  const int64_t volume = f.out.volume(), pixel = at.axis[2][0].step * rows.channels;
  const int64_t part = std::min(f.ci, kTerms), together = std::max<int64_t>(1, kTerms / part);
  for (int64_t phase = 0; phase < p.out_phases[2]; ++phase) {
    const int64_t outputs = (f.out[2] - phase + p.out_phases[2] - 1) / p.out_phases[2];
    const int64_t strips = products::ceil_div(std::max<int64_t>(outputs, 0), kPixels);
    const int64_t count = strips ? list_terms(f, p, rows, at, width, d, h, phase, list) : 0;
    for (int64_t s = 0; s < strips; ++s) {
      const int64_t q = outputs * s / strips, height = outputs * (s + 1) / strips - q;
      const SumTaps sum = sum_taps_of<kPixels>(height, width / kLanes);
      bool fresh = true;
      for (int64_t n = 0; n < count; n += together)
        for (int64_t c = 0; c < f.ci; c += part, fresh = false)
          sum(grid + q * pixel + c, pixel, filters + c * width, width, list + n, std::min(together, count - n),
              std::min(part, f.ci - c), tile, fresh);
      if (fresh) std::memset(tile, 0, sizeof(tile));
      if (values) {  // pixels with their channels side by side
        for (int64_t i = 0; i < height; ++i)
          std::memcpy(values + (q + i) * f.co + first, tile + i * kColumns, kept * 4);
        continue;
      }
      float* to = out + (d * f.out[1] + h) * f.out[2] + phase + q * p.out_phases[2];
      for (int64_t j = 0; j < kept; ++j, to += volume) {
        const float plus = bias ? bias[first + j] : 0.f;
        for (int64_t i = 0; i < height; ++i) to[i * p.out_phases[2]] = tile[i * kColumns + j] + plus;
      }
    }
  }
}

inline int run_channels(const Form& f, const Plan& p, const float* x, const float* weights, const float* bias, float* out,
                        void* workspace) {
  const Rows rows = rows_of(f, p);
  const uintptr_t base = (reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64;
  Term* lists = reinterpret_cast<Term*>(base);
  Access* accesses = reinterpret_cast<Access*>(lists + products::thread_count() * f.kernel.volume());
  Accesses taps{};
  for (int a = 0; a < 3; ++a) {
    taps.axis[a] = accesses;
    for (int64_t k = 0; k < f.kernel[a]; ++k) *accesses++ = access_of(f, a, k);
  }
  float* filters = reinterpret_cast<float*>(base + list_bytes(f));
  float* grids = reinterpret_cast<float*>(base + list_bytes(f) + filter_bytes(f, rows));
  const int64_t all = f.images * f.groups, inside = f.in[0] * f.in[1], unit = inside * rows.row();
  const int64_t width = block_columns(f, rows), block = f.ci * f.kernel.volume() * width, lines = f.out[0] * f.out[1];
  const bool shared = all * f.co * f.ci * f.kernel.volume() * p.runs.volume() > kAlone;
  const int threads = shared ? products::thread_count() : 1;
  const int64_t wanted = 8 * threads;
  const int64_t blocks = std::max<int64_t>(1, std::min(rows.together, all) * rows.blocks);
  const int64_t parts = std::clamp<int64_t>(wanted / blocks, 1, lines);
  const int64_t items = rows.blocks * parts;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
#pragma omp for collapse(2) schedule(static) nowait
    for (int64_t group = 0; group < f.groups; ++group)
      for (int64_t n = 0; n < rows.blocks; ++n)
        pack_filters(f, weights, group, n * width, width, filters + (group * rows.blocks + n) * block);
    for (int64_t from = 0; from < all; from += rows.together) {
      const int64_t count = std::min(rows.together, all - from);
#pragma omp for schedule(static)
      for (int64_t line = 0; line < count * inside; ++line)
        fill_row(f, rows, x + (from + line / inside) * f.ci * f.in.volume() + line % inside * f.in[2],
                 grids + line * rows.row());
#pragma omp for schedule(dynamic)
      for (int64_t item = 0; item < count * items; ++item) {
        const int64_t n = item % items / parts, part = item % parts, group = (from + item / items) % f.groups;
        const float* found = filters + (group * rows.blocks + n) * block;
        for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line)
          sum_row(f, p, rows, taps, grids + item / items * unit, found, bias ? bias + group * f.co : nullptr, n * width,
                  line / f.out[1], line % f.out[1], lists + omp_get_thread_num() * f.kernel.volume(),
                  out + ((from + item / items) * f.co + n * width) * f.out.volume());
      }
    }
  }
  return 0;
}

// --- small maps of transposed convolutions: the taps of a row as output channels ---

constexpr int64_t kExchange = 64;  // taps that are laid out together

// Rows of outputs that use a block of weights while it is in the cache.
inline int64_t lines_together(const Form& wide) {
  return std::clamp<int64_t>((128 << 10) / 4 / (wide.in[2] * wide.co), 1, 16);
}

// Of a thread: what its rows of outputs are made from, and one of them.
inline int64_t values_of(const Form& f, const Form& wide) {
  return (lines_together(wide) * wide.in[2] * wide.co + f.out[2] * spread_channels(f) + 15) / 16 * 16;
}

inline int64_t spread_workspace(const Form& f) {
  const Form wide = spread_form(f);
  return channels_workspace(wide, plan_of(wide)) + 64 + products::thread_count() * values_of(f, wide) * 4;
}

// The weights of an input channel to blocks of output channels of all taps of a row.
inline void pack_wide(const Form& f, const Form& wide, const Rows& rows, const float* weights, int64_t group, int64_t c,
                      float* to) {
  alignas(64) float turned[kExchange * kExchanged];
  const int64_t taps = f.kernel.volume(), width = block_columns(wide, rows), block = f.ci * wide.kernel.volume() * width;
  const int64_t channels = spread_channels(f);
  for (int64_t j = 0; j < channels; j += kExchanged) {
    const int64_t channel = std::min(j, f.co - 1);
    const float* from = weights + ((group * f.ci + c) * f.co + channel) * taps;
    for (int64_t begin = 0; begin < taps; begin += kExchange) {
      const int64_t count = std::min(kExchange, taps - begin);
      products::turn<kExchanged>(from + begin, taps, f.co - channel, count, turned, kExchanged);
      for (int64_t n = 0; n < count; ++n) {
        const int64_t tap = begin + n, place = tap % f.kernel[2] * channels + j;
        std::memcpy(to + place / width * block + (tap / f.kernel[2] * f.ci + c) * width + place % width,
                    turned + n * kExchanged, kExchanged * 4);
      }
    }
  }
}

// A row of outputs from what each pixel of a row of the input and each tap give to it.
inline void gather_row(const Form& f, const float* values, float* row, const float* bias, float* out) {
  const int64_t channels = spread_channels(f), volume = f.out.volume();
  std::memset(row, 0, f.out[2] * channels * 4);
  for (int64_t q = 0; q < f.in[2]; ++q)
    for (int64_t k = 0; k < f.kernel[2]; ++k, values += channels) {
      const int64_t place = q * f.stride[2] + k * f.dilation[2] - f.padding[2];
      if (place < 0 || place >= f.out[2]) continue;
      float* to = row + place * channels;
#pragma omp simd
      for (int64_t j = 0; j < channels; ++j) to[j] += values[j];
    }
  for (int64_t j = 0; j < f.co; ++j, out += volume) {
    const float plus = bias ? bias[j] : 0.f;
    for (int64_t i = 0; i < f.out[2]; ++i) out[i] = row[i * channels + j] + plus;
  }
}

inline int run_spread(const Form& f, const float* x, const float* weights, const float* bias, float* out,
                      void* workspace) {
  const Form wide = spread_form(f);
  const Plan p = plan_of(wide);
  const Rows rows = rows_of(wide, p);
  const uintptr_t base = (reinterpret_cast<uintptr_t>(workspace) + 63) / 64 * 64;
  Term* lists = reinterpret_cast<Term*>(base);
  Access* accesses = reinterpret_cast<Access*>(lists + products::thread_count() * wide.kernel.volume());
  Accesses taps{};
  for (int a = 0; a < 3; ++a) {
    taps.axis[a] = accesses;
    for (int64_t k = 0; k < wide.kernel[a]; ++k) *accesses++ = access_of(wide, a, k);
  }
  const int64_t all = f.images * f.groups, inside = f.in[0] * f.in[1], unit = inside * rows.row();
  const int64_t width = block_columns(wide, rows), block = f.ci * wide.kernel.volume() * width;
  float* filters = reinterpret_cast<float*>(base + list_bytes(wide));
  float* grids = reinterpret_cast<float*>(base + list_bytes(wide) + filter_bytes(wide, rows));
  float* memory = grids + rows.together * unit;
  const bool shared = all * f.co * f.ci * f.kernel.volume() * f.in.volume() > kAlone;
  const int threads = shared ? products::thread_count() : 1;
  const int64_t lines = f.out[0] * f.out[1], most = lines_together(wide);
  const int64_t together = std::clamp<int64_t>(lines * std::min(rows.together, all) / (2 * threads), 1, most);
  const int64_t parts = products::ceil_div(lines, together), volume = f.out.volume();
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
#pragma omp for collapse(2) schedule(static) nowait
    for (int64_t group = 0; group < f.groups; ++group)
      for (int64_t c = 0; c < f.ci; ++c)
        pack_wide(f, wide, rows, weights, group, c, filters + group * rows.blocks * block);
    for (int64_t from = 0; from < all; from += rows.together) {
      const int64_t count = std::min(rows.together, all - from);
#pragma omp for schedule(static)
      for (int64_t line = 0; line < count * inside; ++line)
        fill_row(wide, rows, x + (from + line / inside) * f.ci * f.in.volume() + line % inside * f.in[2],
                 grids + line * rows.row());
#pragma omp for schedule(dynamic)
      for (int64_t item = 0; item < count * parts; ++item) {
        const int64_t n = item / parts, group = (from + n) % f.groups, first = item % parts * together;
        const int64_t end = std::min(lines, first + together), thread = omp_get_thread_num();
        float* values = memory + thread * values_of(f, wide);
        float* row = values + most * f.in[2] * wide.co;
        for (int64_t b = 0; b < rows.blocks; ++b)
          for (int64_t line = first; line < end; ++line)
            sum_row(wide, p, rows, taps, grids + n * unit, filters + (group * rows.blocks + b) * block, nullptr, b * width,
                    line / f.out[1], line % f.out[1], lists + thread * wide.kernel.volume(), nullptr,
                    values + (line - first) * f.in[2] * wide.co);
        for (int64_t line = first; line < end; ++line)
          gather_row(f, values + (line - first) * f.in[2] * wide.co, row, bias ? bias + group * f.co : nullptr,
                     out + (from + n) * f.co * volume + line * f.out[2]);
      }
    }
  }
  return 0;
}

inline int64_t workspace_of(const Form& f) {
  static char none;
  if (f.images * f.groups * f.co * f.out.volume() == 0) return 0;
  const Plan p = plan_of(f);
  if (spreads(f, p)) return spread_workspace(f);
  return by_channels(f, p) ? channels_workspace(f, p) : places_of(f, p, &none).bytes;
}

inline void list_taps(const Form& f, const Plan& p, const Places& at) {
  const int64_t volume = p.grid.volume(), phases = p.out_phases.volume();
  int64_t count = 0;
  for (int64_t phase = 0; phase < phases; ++phase) {
    const int64_t begin = at.first[phase] = count;
    const Axes r{phase / p.out_phases[2] / p.out_phases[1], phase / p.out_phases[2] % p.out_phases[1],
                 phase % p.out_phases[2]};
    for (int64_t tap = 0; tap < f.kernel.volume(); ++tap) {
      const Axes k{tap / f.kernel[2] / f.kernel[1], tap / f.kernel[2] % f.kernel[1], tap % f.kernel[2]};
      int64_t place = 0, grid = 0;
      bool reaches = true;
      for (int a = 0; a < 3; ++a) {
        const Tap found = tap_of(f, a, k[a]);
        reaches &= found.out_phase == r[a];
        place = place * p.grid[a] + found.shift - p.low[a];
        grid = grid * p.in_phases[a] + found.in_phase;
      }
      if (!reaches) continue;
      at.taps[count] = tap;
      at.distances[f.ci * begin + count - begin] = grid * volume + place;
      ++count;
    }
    const int64_t found = count - begin;
    int64_t* distances = at.distances + f.ci * begin;
    for (int64_t c = 1; c < f.ci; ++c)
      for (int64_t t = 0; t < found; ++t) distances[c * found + t] = distances[t] + c * p.in_phases.volume() * volume;
  }
  at.first[phases] = count;
}

// The channels of a block that begins at `first`: as many as a tile has, then a power of two.
inline int64_t block_of(int64_t first, int64_t channels) {
  int64_t block = kChannels;
  while (block > channels - first) block /= 2;
  return block;
}

// Packs the weights of up to `kChannels` output channels.
inline void pack_weights(const Form& f, const Places& at, const float* weights, int64_t group, int64_t phase,
                         int64_t first) {
  const int64_t taps = f.kernel.volume(), begin = at.first[phase], count = at.first[phase + 1] - begin;
  float* to = at.weights + f.co * f.ci * (group * taps + begin) + first * f.ci * count;
  for (const int64_t end = std::min<int64_t>(first + kChannels, f.co); first < end;) {
    const int64_t block = block_of(first, f.co);
    if (taps == 1 && !f.transposed) {  // a product
      const float* from = weights + (group * f.co + first) * f.ci;
      for (int64_t c = 0; c < f.ci * count; ++c) {
        if (block == kChannels)
          for (int i = 0; i < kChannels; ++i) to[c * kChannels + i] = from[i * f.ci + c];
        else
          for (int64_t i = 0; i < block; ++i) to[c * block + i] = from[i * f.ci + c];
      }
      first += block;
      to += block * f.ci * count;
      continue;
    }
    for (int64_t i = 0; i < block; ++i, ++first)
      for (int64_t c = 0; c < f.ci; ++c) {
        const int64_t filter = f.transposed ? (group * f.ci + c) * f.co + first : (group * f.co + first) * f.ci + c;
        const float* from = weights + filter * taps;
        for (int64_t t = 0; t < count; ++t) to[(c * count + t) * block + i] = from[at.taps[begin + t]];
      }
    to += block * f.ci * count;
  }
}

// Fills one depth of one grid of one channel.
inline void fill_grid(const Form& f, const Plan& p, const float* channel, float* grid, int64_t phase, int64_t depth) {
  Axes r{0, 0, 0};  // divisions take longer than short rows
  if (phase) r = {phase / p.in_phases[2] / p.in_phases[1], phase / p.in_phases[2] % p.in_phases[1], phase % p.in_phases[2]};
  const Axes step = f.transposed ? Axes{1, 1, 1} : f.stride;
  const int64_t d = (depth + p.low[0]) * step[0] + r[0], width = p.grid[2];
  // Places u of a row with (u + low) * step + phase in [0, in).
  const int64_t s = step[2], low = p.low[2];
  const int64_t begin = std::clamp<int64_t>(floor_div(-r[2] + s - 1, s) - low, 0, width);
  const int64_t end = std::clamp<int64_t>(floor_div(f.in[2] - r[2] + s - 1, s) - low, begin, width);
  float* to = grid + depth * p.grid[1] * width;
  for (int64_t row = 0; row < p.grid[1]; ++row, to += width) {
    const int64_t h = (row + p.low[1]) * step[1] + r[1];
    if (d < 0 || d >= f.in[0] || h < 0 || h >= f.in[1]) {
      std::memset(to, 0, width * 4);
      continue;
    }
    const float* from = channel + (d * f.in[1] + h) * f.in[2] + low * s + r[2];
    std::memset(to, 0, begin * 4);
    if (s == 1)
      std::memcpy(to + begin, from + begin, (end - begin) * 4);
    else
      for (int64_t u = begin; u < end; ++u) to[u] = from[u * s];
    std::memset(to + end, 0, (width - end) * 4);
  }
}

// --- sums ---

template <int M, int V>
inline void sum_tile(const float* weights, const float* grid, const int64_t* distances, int64_t terms, float* sums,
                     bool fresh) {
  Vector sum[M][V] = {};
  for (int64_t k = 0; k < terms; ++k, weights += M) {
    const float* from = grid + distances[k];
    Vector values[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) values[v] = *reinterpret_cast<const Loose*>(from + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[i][v] += weights[i] * values[v];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i) {
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      Vector* to = reinterpret_cast<Vector*>(sums + i * kWidth + v * kLanes);
      *to = fresh ? sum[i][v] : *to + sum[i][v];
    }
  }
}

template <int M>
inline void sum_tile(int vectors, const float* weights, const float* grid, const int64_t* distances, int64_t terms,
                     float* sums, bool fresh) {
  if (vectors == 1) sum_tile<M, 1>(weights, grid, distances, terms, sums, fresh);
  if (vectors == 2) sum_tile<M, 2>(weights, grid, distances, terms, sums, fresh);
  if (vectors == 3) sum_tile<M, 3>(weights, grid, distances, terms, sums, fresh);
}

inline void sum_block(int64_t channels, int vectors, const float* weights, const float* grid, const int64_t* distances,
                      int64_t terms, float* sums, bool fresh) {
  if (channels == 8) sum_tile<8>(vectors, weights, grid, distances, terms, sums, fresh);
  if (channels == 4) sum_tile<4>(vectors, weights, grid, distances, terms, sums, fresh);
  if (channels == 2) sum_tile<2>(vectors, weights, grid, distances, terms, sums, fresh);
  if (channels == 1) sum_tile<1>(vectors, weights, grid, distances, terms, sums, fresh);
}

// A run of outputs of one depth of one phase, along its flattened rows.
struct Run {
  int64_t first, end;  // of the run
  int64_t length;      // of the flattened rows
};

struct Target {
  float* out;              // the first pixel of the depth and phase, of the first channel of the group
  int64_t columns;         // pixels of a row of the phase
  int64_t row_step, step;  // between pixels of the phase in memory
  int64_t volume;          // of a channel
  const float* bias;       // of the group, or null
};

// Stores the sums of the places [begin, end); a tile begins at place `origin`.
inline void store_tile(const Target& to, int64_t pitch, int64_t channel, int64_t block, const float* sums,
                       int64_t origin, int64_t begin, int64_t end) {
  if (to.step == 1 && pitch == to.columns && pitch == to.row_step) {  // rows without gaps
    for (int64_t i = 0; i < block; ++i) {
      float* out = to.out + (channel + i) * to.volume;
      const float* from = sums + i * kWidth - origin;
      const float bias = to.bias ? to.bias[channel + i] : 0.f;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) out[j] = from[j] + bias;
    }
    return;
  }
  int64_t row = begin / pitch, column = begin % pitch;
  for (int64_t at = begin; at < end;) {
    const int64_t count = std::min(end - at, pitch - column), kept = std::min(count, to.columns - column);
    for (int64_t i = 0; i < block && kept > 0; ++i) {
      float* out = to.out + (channel + i) * to.volume + row * to.row_step + column * to.step;
      const float* from = sums + i * kWidth + at - origin;
      const float bias = to.bias ? to.bias[channel + i] : 0.f;
      if (to.step == 1) {
#pragma omp simd
        for (int64_t j = 0; j < kept; ++j) out[j] = from[j] + bias;
      } else {
        for (int64_t j = 0; j < kept; ++j) out[j * to.step] = from[j] + bias;
      }
    }
    at += count;
    ++row;
    column = 0;
  }
}

inline void sum_run(const Form& f, const Plan& p, const float* weights, const int64_t* distances, int64_t terms,
                    const float* grid, const Target& to, Run run, int64_t first, int64_t last) {
  alignas(64) float sums[kTiles][kChannels * kWidth];
  const int64_t parts = std::max<int64_t>(1, (terms + kTerms - 1) / kTerms), part = (terms + parts - 1) / parts;
  for (int64_t channel = first; channel < last;) {
    const int64_t block = block_of(channel, f.co);
    for (int64_t n = 0; n < parts; ++n) {
      const int64_t begin = std::min(n * part, terms), count = std::min(part, terms - begin);
      int tile = 0;
      for (int64_t at = run.first; at < run.end; at += kWidth, ++tile) {
        const int64_t width = std::min<int64_t>(kWidth, run.end - at);
        const int vectors = static_cast<int>((width + kLanes - 1) / kLanes);
        // Without a copy nothing may be read behind the last row: the last tile begins earlier.
        const int64_t origin = p.copies ? at : std::min(at, run.length - vectors * kLanes);
        sum_block(block, vectors, weights + channel * terms + begin * block, grid + origin, distances + begin, count,
                  sums[tile], n == 0);
        if (n + 1 == parts) store_tile(to, p.grid[2], channel, block, sums[tile], origin, at, at + width);
      }
    }
    channel += block;
  }
}

// One work item: a run of outputs of one depth, for the phases of the last axis and some channels.
inline void sum_item(const Form& f, const Plan& p, const Places& at, const float* grids, const float* bias, float* out,
                     int64_t unit, int64_t item, int64_t runs, int64_t chunks) {
  const int64_t chunk = item % chunks, run = item / chunks % runs, line = item / chunks / runs;
  const int64_t depth = line % p.runs[0], rh = line / p.runs[0] % p.out_phases[1];
  const int64_t rd = line / p.runs[0] / p.out_phases[1];
  const int64_t step = (f.co + chunks - 1) / chunks, share = (step + kChannels - 1) / kChannels * kChannels;
  const int64_t first = std::min(chunk * share, f.co), last = std::min(first + share, f.co);
  const int64_t d = rd + depth * p.out_phases[0], group = unit % f.groups;
  if (d >= f.out[0] || first == last) return;
  for (int64_t rw = 0; rw < p.out_phases[2]; ++rw) {
    const int64_t phase = (rd * p.out_phases[1] + rh) * p.out_phases[2] + rw;
    const int64_t rows = (f.out[1] - rh + p.out_phases[1] - 1) / p.out_phases[1];
    const int64_t columns = (f.out[2] - rw + p.out_phases[2] - 1) / p.out_phases[2];
    if (rows <= 0 || columns <= 0) continue;
    const int64_t begin = at.first[phase], terms = f.ci * (at.first[phase + 1] - begin);
    Target to{};
    to.volume = f.out.volume();
    to.out = out + unit * f.co * to.volume + (d * f.out[1] + rh) * f.out[2] + rw;
    to.columns = columns;
    to.row_step = p.out_phases[1] * f.out[2];
    to.step = p.out_phases[2];
    to.bias = bias ? bias + group * f.co : nullptr;
    Run places{};
    places.length = (rows - 1) * p.grid[2] + columns;
    places.first = run * kTiles * kWidth;
    places.end = std::min(places.first + kTiles * kWidth, places.length);
    if (places.first >= places.end) continue;
    sum_run(f, p, at.weights + f.co * f.ci * (group * f.kernel.volume() + begin), at.distances + f.ci * begin, terms,
            grids + depth * p.grid[1] * p.grid[2], to, places, first, last);
  }
}

// --- entry points ---

inline int run_convolution(const Form& f, const float* x, const float* weights, const float* bias, float* out,
                           void* workspace) {
  if (f.images * f.groups * f.co * f.out.volume() == 0) return 0;
  const Plan p = plan_of(f);
  if (spreads(f, p)) return run_spread(f, x, weights, bias, out, workspace);
  if (by_channels(f, p)) return run_channels(f, p, x, weights, bias, out, workspace);
  const Places at = places_of(f, p, workspace);
  list_taps(f, p, at);
  const int64_t phases = p.out_phases.volume(), planes = p.in_phases.volume(), all = f.images * f.groups;
  const int64_t longest = (p.runs[1] - 1) * p.grid[2] + p.runs[2];
  const int64_t runs = (longest + kTiles * kWidth - 1) / (kTiles * kWidth);
  const int64_t lines = p.out_phases[0] * p.out_phases[1] * p.runs[0];
  const int64_t step = p.copies ? p.units : all;
  const bool shared = all * f.co * f.ci * f.kernel.volume() * p.runs.volume() > kAlone;
  const int64_t wanted = shared ? 4 * omp_get_max_threads() : 1;
  const int64_t blocks = (f.co + kChannels - 1) / kChannels;
  const int64_t chunks = std::clamp<int64_t>(wanted / std::max<int64_t>(1, std::min(step, all) * lines * runs), 1, blocks);
#pragma omp parallel if (shared)
  {
#pragma omp for collapse(3) schedule(static) nowait
    for (int64_t group = 0; group < f.groups; ++group)
      for (int64_t phase = 0; phase < phases; ++phase)
        for (int64_t block = 0; block < blocks; ++block) pack_weights(f, at, weights, group, phase, block * kChannels);
    if (!p.copies) {
#pragma omp barrier
    }
    for (int64_t from = 0; from < all; from += step) {
      const int64_t count = std::min(step, all - from);
      if (p.copies) {
        const int64_t channels = count * f.ci, volume = p.grid.volume();
#pragma omp for collapse(3) schedule(static)
        for (int64_t channel = 0; channel < channels; ++channel)
          for (int64_t phase = 0; phase < planes; ++phase)
            for (int64_t depth = 0; depth < p.grid[0]; ++depth)
              fill_grid(f, p, x + (from * f.ci + channel) * f.in.volume(), at.grids + (channel * planes + phase) * volume,
                        phase, depth);
      }
      const int64_t items = lines * runs * chunks;
#pragma omp for schedule(dynamic)
      for (int64_t item = 0; item < count * items; ++item) {
        const int64_t unit = item / items;
        const float* grids = p.copies ? at.grids + unit * p.unit : x + (from + unit) * f.ci * f.in.volume();
        sum_item(f, p, at, grids, bias, out, from + unit, item % items, runs, chunks);
      }
    }
  }
  return 0;
}

// Two convolutions, the second of the result of the first, some images at a time.
inline int64_t images_together(const Form& first) {
  const int64_t bytes = std::max<int64_t>(1, first.groups * first.co * first.out.volume() * 4);
  return std::clamp<int64_t>(kBatchBytes / bytes, 1, std::max<int64_t>(first.images, 1));
}

inline int64_t between_bytes(const Form& first) {
  return (images_together(first) * first.groups * first.co * first.out.volume() * 4 + 63) / 64 * 64;
}

inline int64_t pair_workspace(Form first, Form second) {
  const int64_t images = first.images, together = images_together(first), head = between_bytes(first);
  int64_t most = 0;
  for (const int64_t count : {std::min(together, images), images % together}) {
    if (count == 0) continue;
    first.images = second.images = count;
    most = std::max({most, workspace_of(first), workspace_of(second)});
  }
  return head + most;
}

inline int run_pair(Form first, const float* x, const float* first_weights, const float* first_bias, Form second,
                    const float* second_weights, const float* second_bias, float* out, void* workspace) {
  const int64_t images = first.images, together = images_together(first), head = between_bytes(first);
  float* between = static_cast<float*>(workspace);
  void* rest = static_cast<char*>(workspace) + head;
  for (int64_t image = 0; image < images; image += together) {
    first.images = second.images = std::min(together, images - image);
    run_convolution(first, x + image * first.groups * first.ci * first.in.volume(), first_weights, first_bias, between,
                    rest);
    run_convolution(second, between, second_weights, second_bias,
                    out + image * second.groups * second.co * second.out.volume(), rest);
  }
  return 0;
}

}  // namespace warpsmith::conv
