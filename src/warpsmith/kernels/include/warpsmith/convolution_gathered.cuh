// convolution_gathered.cuh: convolutions as products of gathered pixels, in one pass over memory, with the accuracy of float32.
//
// When to use it: where the kernels of convolution.cuh waste most of their 512-pixel tiles or spend their time on copies of the
// input: small images, few images, 1 x 1 kernels, large strides, groups of few channels, transposed convolutions with many phases.
// Right for every convolution: up to kMostTaps taps, 64 phases of the output and 2^31 terms; the plain kernel beyond.
//
// How it works: rows of the product are the pixels of all images, one after the other; columns are the output channels of a
// group; terms are (channel, tap) in the order of the weights. A transposed convolution is one such product for every phase of its
// stride, with the taps that reach the phase. Asynchronous copies of 4 bytes gather the pixels (zeros where a tap lies outside; 16
// bytes where neighbouring pixels stay neighbours), kDepth terms per stage, four stages. Warps multiply float32 numbers that are
// split into two TF32 numbers (mma_tf32.cuh) and add to float32 registers every 32 terms. Where there are few tiles, slices of the
// terms are summed by different blocks, and a second kernel adds the slices in their order. Sums that come out infinite or NaN are
// computed again in plain arithmetic, so that infinite inputs reach the outputs that they reach in float32.
#pragma once

#include <warpsmith/convolution.cuh>
#include <warpsmith/divisor.cuh>
#include <warpsmith/mma_tf32.cuh>

namespace warpsmith {
namespace conv {
namespace gathered {

#ifndef TUNE_WARP_ROWS
#define TUNE_WARP_ROWS 32  // of tiles of up to 4096 results: 16 gives them twice as many warps
#endif
#ifndef TUNE_DEPTH
#define TUNE_DEPTH 16  // terms of a stage, 16 or 32
#endif
constexpr int kDepth = TUNE_DEPTH, kStages = kDepth == 32 ? 3 : 4;  // terms of a stage; stages on their way
constexpr int kFold = 32;  // terms that tensor cores add up
constexpr int kMostTaps = 2048, kMostPhases = 64, kMostSlices = 32;

// Taps that reach one pixel: at most one; at most 32, which are bits of a word; any number.
enum class Taps { one, few, many };

// A block's part of the product: rows and columns, and those of a warp.
template <int Rows, int Columns, int WarpRows, int WarpColumns>
struct Tile {
  static constexpr int rows = Rows, columns = Columns, warp_rows = WarpRows, warp_columns = WarpColumns;
  static constexpr int across = Columns / WarpColumns, threads = Rows / WarpRows * across * 32;
  static constexpr int pitch = Rows + 8, weight_pitch = kDepth + 4, result_pitch = Rows + 4;  // floats; without bank conflicts
  static constexpr int stage = kDepth * pitch + Columns * weight_pitch;
  static constexpr int floats = kStages * stage > Columns * result_pitch ? kStages * stage : Columns * result_pitch;
};

struct Phase {
  int r[3], count[3];            // of the output: first index and number of indices, per axis
  short first_tap[3], reach[3];  // the first tap that reaches the phase and the number of those that do, per axis
  int taps;
  Divisor by_taps;
};

struct Args {
  Form f;
  int64_t total;  // elements of the output
  int row_tiles, column_tiles, slices;
  int slice_terms;
  int tap_step[3];
  int phases;
  Phase phase[kMostPhases];
};

struct Term {
  int at;   // pixels of the input from the first one
  int tap;  // the tap, or its bit where taps are few; beyond the last term -1, or no bit
};
struct Place {
  int at, weight;  // of a tap: pixels of the input from the first one, floats of the weights
};
struct Away {
  int d, h, w;  // coordinates of the input from the first one
};

__device__ __forceinline__ void copy4(float* to, const float* from, bool exists) {
  const unsigned at = unsigned(__cvta_generic_to_shared(to));
  const int bytes = exists ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy16(float* to, const float* from, bool exists) {
  const unsigned at = unsigned(__cvta_generic_to_shared(to));
  const int bytes = exists ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_begun() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// From one tap that reaches a phase to the next one, along one axis.
inline int tap_step(const Form& f, int axis) {
  if (!f.transposed) return 1;
  int a = f.stride[axis], b = f.dilation[axis];
  while (b) {
    const int rest = a % b;
    a = b, b = rest;
  }
  return f.stride[axis] / a;
}

// The table of the taps of a phase, in the order of their terms.
template <bool kTransposed>
__device__ __forceinline__ void list_taps(const Args& args, const Phase& q, Place* place, Away* away) {
  const Form& f = args.f;
  for (int t = int(threadIdx.x); t < q.taps; t += int(blockDim.x)) {
    int k[3] = {t / q.reach[2] / q.reach[1], t / q.reach[2] % q.reach[1], t % q.reach[2]}, from[3];
#pragma unroll
    for (int a = 0; a < 3; ++a) {
      if (kTransposed) k[a] = q.first_tap[a] + k[a] * args.tap_step[a];
      from[a] = k[a] * f.dilation[a];
      if (kTransposed) from[a] = (q.r[a] + f.pad[a] - from[a]) / f.stride[a];
    }
    place[t] = {int((int64_t(from[0]) * f.in[1] + from[1]) * f.in[2] + from[2]), (k[0] * f.kernel[1] + k[1]) * f.kernel[2] + k[2]};
    away[t] = {from[0], from[1], from[2]};
  }
}

// A row of the product: a pixel of an image, as indices of its phase.
struct Pixel {
  int64_t image;
  int d, h, w;
  __device__ __forceinline__ Pixel(const Phase& q, int64_t row) {
    const int64_t per_image = int64_t(q.count[0]) * q.count[1] * q.count[2];
    image = row / per_image;
    const int rest = int(row - image * per_image);
    w = rest % q.count[2], h = rest / q.count[2] % q.count[1], d = rest / q.count[2] / q.count[1];
  }
};

// The sum in plain arithmetic of one element of the output.
static __device__ __noinline__ float plain_sum(const Form& f, const float* x, const float* w, int64_t element) {
  const int64_t volume = f.out_volume(), channels = element / volume;
  const int pixel = int(element - channels * volume), all = f.groups * f.co;
  return direct_sum(f, x, w, int(channels / all), int(channels % all), pixel / f.out[2] / f.out[1], pixel / f.out[2] % f.out[1],
                    pixel % f.out[2]);
}

__device__ __forceinline__ bool is_finite(float v) { return fabsf(v) <= 3.4028234e38f; }

template <class T, Taps kTaps, bool kWide, bool kWeights16, bool kTransposed>
__global__ void __launch_bounds__(T::threads, T::threads == 128 ? 4 : T::rows * T::columns > 4096 ? 2 : 3)
    multiply_gathered(const __grid_constant__ Args a, const float* __restrict__ x, const float* __restrict__ w,
                      const float* __restrict__ bias, float* __restrict__ out, float* __restrict__ parts) {
  extern __shared__ __align__(16) unsigned char bytes[];
  float* memory = reinterpret_cast<float*>(bytes);
  const Form& f = a.f;
  Term* terms = reinterpret_cast<Term*>(memory + T::floats);
  int* term_weights = reinterpret_cast<int*>(terms + kStages * kDepth);  // of transposed convolutions
  Place* place = reinterpret_cast<Place*>(term_weights + kStages * kDepth);
  Away* away = reinterpret_cast<Away*>(place + f.taps());
  const int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32;

  // Column tiles and phases of the same pixels are neighbours: they share the pixels, and phases write the same lines. Every row
  // tile begins with another phase, so that no multiprocessor has only the phases with the most taps.
  unsigned block = blockIdx.x;
  const int column_tile = int(block % unsigned(a.column_tiles));
  block /= unsigned(a.column_tiles);
  const unsigned turn = block % unsigned(a.phases);
  block /= unsigned(a.phases);
  const int row_tile = int(block % unsigned(a.row_tiles));
  const Phase& q = a.phase[(turn + unsigned(row_tile)) % unsigned(a.phases)];
  block /= unsigned(a.row_tiles);
  const int slice = int(block % unsigned(a.slices)), group = int(block / unsigned(a.slices));

  const int64_t rows = int64_t(f.images) * q.count[0] * q.count[1] * q.count[2], first_row = int64_t(row_tile) * T::rows;
  if (first_row >= rows) return;
  const int first_column = column_tile * T::columns;
  const int begin = slice * a.slice_terms, end = min(f.ci * q.taps, begin + a.slice_terms);
  const int steps = end > begin ? (end - begin + kDepth - 1) / kDepth : 0;
  list_taps<kTransposed>(a, q, place, away);
  __syncthreads();

  // The pixel that a thread gathers; where pixels are gathered four at a time, the first of four.
  constexpr int kAtOnce = kWide ? 4 : 1, kAcross = T::rows / kAtOnce, kLines = T::threads / kAcross;
  const int pixel = thread % kAcross * kAtOnce, line = thread / kAcross;
  const int volume = f.in_volume();
  const float* from = x;
  unsigned reached = 0;  // bits: taps that lie inside the image
  int first_d = 0, first_h = 0, first_w = 0;
  const bool exists = first_row + pixel < rows;
  if (exists) {
    const Pixel p(q, first_row + pixel);
    first_d = kTransposed ? p.d : p.d * f.stride[0] - f.pad[0];
    first_h = kTransposed ? p.h : p.h * f.stride[1] - f.pad[1];
    first_w = kTransposed ? p.w : p.w * f.stride[2] - f.pad[2];
    from += (p.image * f.groups + group) * f.ci * int64_t(volume) + (int64_t(first_d) * f.in[1] + first_h) * f.in[2] + first_w;
  }
  auto inside = [&](int tap) {
    const Away t = away[tap];
    return int(unsigned(first_d + t.d) < unsigned(f.in[0])) & int(unsigned(first_h + t.h) < unsigned(f.in[1])) &
           int(unsigned(first_w + t.w) < unsigned(f.in[2]));
  };
  if (exists && kTaps != Taps::many)
#pragma unroll 4
    for (int t = 0; t < q.taps; ++t) reached |= unsigned(inside(t)) << t;
  if (kTaps == Taps::one && q.taps) from += place[0].at;

  const int64_t all_terms = int64_t(f.ci) * f.taps();
  const int columns = min(T::columns, f.co - first_column);
  const float* weights = kTransposed ? w + (int64_t(group) * f.ci * f.co + first_column) * f.taps()
                                     : w + (int64_t(group) * f.co + first_column) * all_terms;
  const int channel_weights = f.co * f.taps();  // transposed
  const int only_weight = kTransposed && kTaps == Taps::one && q.taps ? place[0].weight : 0;

  // What all threads need to know of a term; they wait for each other before load() reads it.
  constexpr bool kListed = kTaps != Taps::one;
  auto list_term = [&](int i) {
    const int k = begin + i, to = i % (kStages * kDepth);
    const int channel = int(q.by_taps.quotient(unsigned(k))), tap = k - channel * q.taps;
    const bool ok = k < end;
    const Place at = place[ok ? tap : 0];
    terms[to] = {ok ? channel * volume + at.at : 0, kTaps == Taps::few ? (ok ? int(1u << tap) : 0) : (ok ? tap : -1)};
    if (kTransposed) term_weights[to] = ok ? channel * channel_weights + at.weight : -1;
  };
  if (kListed && steps)
    for (int i = thread; i < kStages * kDepth; i += T::threads) list_term(i);
  if (kListed) __syncthreads();

  // The weights that a thread copies: their first column and term, and from one to the next.
  constexpr int kPower = T::columns == 48 ? 16 : T::columns == 24 ? 8 : T::columns;  // divides the columns and the threads
  constexpr int kQuadTerms = kDepth / 4, kWeightColumns = kWeights16    ? T::threads / kQuadTerms
                                                          : kTransposed ? (kPower < T::threads / 4 ? kPower : T::threads / 4)
                                                                        : T::threads / kDepth;
  constexpr int kWeightTerms = kTransposed ? T::threads / kWeightColumns : kDepth;  // at once
  const int weight_column = kWeights16    ? thread / kQuadTerms
                            : kTransposed ? thread / 4 % kWeightColumns
                                          : thread / kDepth;
  const int weight_term = kWeights16    ? thread % kQuadTerms * 4
                          : kTransposed ? thread % 4 + thread / (4 * kWeightColumns) * 4
                                        : thread % kDepth;
  weights += kTransposed ? int64_t(weight_column) * f.taps() + only_weight : weight_column * all_terms + begin + weight_term;

  // Addresses come first: the compiler moves no reads of shared memory across copies.
  auto load = [&](int step) {
    float* to = memory + step % kStages * T::stage;
    const Term* stage_terms = terms + step % kStages * kDepth;
    const int* stage_weights = term_weights + step % kStages * kDepth;
    const int first = begin + step * kDepth;
    constexpr int kCopies = kDepth / kLines, kBatch = kCopies < 8 ? kCopies : 8;
#pragma unroll
    for (int b = 0; b < kCopies; b += kBatch) {
      const float* source[kBatch];
      bool ok[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = line + (b + i) * kLines;
        if constexpr (kTaps == Taps::one) {
          ok[i] = reached != 0 && first + at < end;
          source[i] = from + unsigned(first + at) * unsigned(volume);  // below 2^30 where it exists
        } else {
          const Term term = stage_terms[at];
          if constexpr (kTaps == Taps::few)
            ok[i] = (reached & unsigned(term.tap)) != 0;
          else
            ok[i] = exists && term.tap >= 0 && inside(max(term.tap, 0));
          source[i] = from + term.at;
        }
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        float* const there = to + (line + (b + i) * kLines) * T::pitch + pixel;
        if (kWide)
          copy16(there, source[i], ok[i]);
        else
          copy4(there, source[i], ok[i]);
      }
    }
    to += kDepth * T::pitch;
    if constexpr (!kTransposed) {
      const bool ok = first + weight_term < end;
#pragma unroll
      for (int c = 0; c < T::columns; c += kWeightColumns) {
        const int column = weight_column + c;
        if (T::columns % kWeightColumns && column >= T::columns) continue;
        float* const there = to + column * T::weight_pitch + weight_term;
        if (kWeights16)
          copy16(there, weights + (step * kDepth + c * all_terms), ok && column < columns);
        else
          copy4(there, weights + (step * kDepth + c * all_terms), ok && column < columns);
      }
    } else {
      constexpr int kTimes = (kDepth + kWeightTerms - 1) / kWeightTerms;
      int which[kTimes];
#pragma unroll
      for (int i = 0; i < kTimes; ++i) {
        const int at = weight_term + i * kWeightTerms;
        if (kDepth % kWeightTerms && at >= kDepth) continue;
        which[i] = kListed ? stage_weights[at] : (first + at) * channel_weights;
      }
#pragma unroll
      for (int i = 0; i < kTimes; ++i)
#pragma unroll
        for (int c = 0; c < T::columns; c += kWeightColumns) {
          const int at = weight_term + i * kWeightTerms, column = weight_column + c;
          if (kDepth % kWeightTerms && at >= kDepth) continue;
          copy4(to + column * T::weight_pitch + at, weights + which[i] + c * f.taps(), column < columns && first + at < end);
        }
    }
  };

  constexpr int kM = T::warp_rows / 16, kN = T::warp_columns / 8;
  const int g = lane / 4, t = lane % 4;
  const int warp_row = warp / T::across * T::warp_rows, warp_column = warp % T::across * T::warp_columns;
  float sums[kM][kN][4], d[kM][kN][4];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][n][e] = 0.0f, d[m][n][e] = 0.0f;

#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < steps) load(s);
    copies_begun();
  }
  for (int step = 0; step < steps; ++step) {
    copies_wait<kStages - 2>();
    __syncthreads();  // this stage is there, and all warps have used the one before
    if (step + kStages - 1 < steps) load(step + kStages - 1);
    copies_begun();
    if (kListed && thread < kDepth) list_term((step + kStages) * kDepth + thread);
    const float* pixels = memory + step % kStages * T::stage + warp_row + g;
    const float* filters = memory + step % kStages * T::stage + kDepth * T::pitch + (warp_column + g) * T::weight_pitch;
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      mma::Parts left[kM][4], right[kN][2];
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) left[m][e] = mma::split(pixels[(k + t + e / 2 * 4) * T::pitch + m * 16 + e % 2 * 8]);
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) right[n][e] = mma::split(filters[n * 8 * T::weight_pitch + k + t + e * 4]);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n) mma::multiply_split(d[m][n], left[m], right[n]);
    }
    if (step % (kFold / kDepth) == kFold / kDepth - 1 || step + 1 == steps) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[m][n][e] += d[m][n][e], d[m][n][e] = 0.0f;
    }
  }
  copies_wait<0>();
  __syncthreads();

  // Through shared memory, so that neighbours in a warp write neighbouring pixels.
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        memory[(warp_column + n * 8 + 2 * t + e % 2) * T::result_pitch + warp_row + m * 16 + g + e / 2 * 8] = sums[m][n][e];
  __syncthreads();
  const int out_volume = f.out_volume();
  const bool last = a.slices == 1;
  float* to = last ? out : parts + slice * a.total;
  auto finished = [&](float value, int column, int64_t element) {
    if (!last) return value;
    const float more = bias ? __ldg(bias + group * f.co + first_column + column) : 0.0f;
    return (is_finite(value) ? value : plain_sum(f, x, w, element)) + more;
  };
  if (!kTransposed && out_volume % 4 == 0) {
    constexpr int kQuads = T::rows / 4;
    const int row = thread % kQuads * 4;
    if (first_row + row >= rows) return;
    const Pixel p(q, first_row + row);
    const int64_t pixel_at = (int64_t(p.d) * f.out[1] + p.h) * f.out[2] + p.w;
    const int64_t at = ((p.image * f.groups + group) * f.co + first_column) * int64_t(out_volume) + pixel_at;
    for (int column = thread / kQuads; column < columns; column += T::threads / kQuads) {
      float4 four = *reinterpret_cast<const float4*>(memory + column * T::result_pitch + row);
      const int64_t element = at + int64_t(column) * out_volume;
      four.x = finished(four.x, column, element), four.y = finished(four.y, column, element + 1);
      four.z = finished(four.z, column, element + 2), four.w = finished(four.w, column, element + 3);
      *reinterpret_cast<float4*>(to + element) = four;
    }
  } else {
    const int row = thread % T::rows;
    if (first_row + row >= rows) return;
    const Pixel p(q, first_row + row);
    int o[3] = {p.d, p.h, p.w};
    if (kTransposed)
      for (int axis = 0; axis < 3; ++axis) o[axis] = o[axis] * f.stride[axis] + q.r[axis];
    const int64_t pixel_at = (int64_t(o[0]) * f.out[1] + o[1]) * f.out[2] + o[2];
    const int64_t at = ((p.image * f.groups + group) * f.co + first_column) * int64_t(out_volume) + pixel_at;
    for (int column = thread / T::rows; column < columns; column += T::threads / T::rows) {
      const int64_t element = at + int64_t(column) * out_volume;
      to[element] = finished(memory[column * T::result_pitch + row], column, element);
    }
  }
}

// Adds the slices of the terms, in their order.
static __global__ void __launch_bounds__(256)
    add_gathered(const __grid_constant__ Form f, int64_t total, int slices, const float* __restrict__ x, const float* __restrict__ w,
                 const float* __restrict__ bias, const float* __restrict__ parts, float* __restrict__ out) {
  const int64_t volume = f.out_volume();
  for (int64_t e = blockIdx.x * int64_t(256) + threadIdx.x; e < total; e += int64_t(gridDim.x) * 256) {
    float sum = 0.0f;
#pragma unroll 4
    for (int s = 0; s < slices; ++s) sum += parts[s * total + e];
    if (!is_finite(sum)) sum = plain_sum(f, x, w, e);
    out[e] = sum + (bias ? __ldg(bias + e / volume % (f.groups * f.co)) : 0.0f);
  }
}

// --- the plan ---------------------------------------------------------------------------------------------------------

struct Plan {
  bool ok;
  int rows;  // of a tile
  int64_t blocks;
  double microseconds;  // what it is expected to take
  Args args;
};

inline int processors_of_device() {
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  return processors;
}

// What the tile and the number of slices are chosen by. Cycles of a multiprocessor for one stage of a block: 600 products of a
// tensor core per cycle, of which there are three for every product, or the instructions of four schedulers; a block that is alone
// on its multiprocessor needs at least kAlone cycles for a stage.
inline double microseconds_of(int rows, int columns, int64_t blocks, int steps, int slices, int64_t total, bool wide, int processors) {
  constexpr double kCyclesPerMicrosecond = 1750.0, kAlone = 750.0;
  const double products = rows * columns * kDepth * 3 / 600.0;
  const double gathered = rows * kDepth / 128.0 * (wide ? 2.0 : 11.0) + columns * kDepth / 128.0 * 3.0;
  const int warp_columns = columns % 24 == 0 ? 24 : std::min(columns, 32), warp_rows = rows == 128 || columns > 32 ? 32 : 16;
  const double warps = double(rows / warp_rows) * (columns / warp_columns);
  const double split = warps / 4 * 2 * (4.0 * (warp_rows / 4 + warp_columns / 4) + 3.0 * (warp_rows / 16) * (warp_columns / 8));
  const double busy = 1.4 * std::max(products, gathered + split);
  const double per_processor = double((blocks + processors - 1) / processors);
  const double resident = std::min(per_processor, rows * columns > 4096 ? 2.0 : 4.0);
  const double cycles = per_processor * (std::max(busy, kAlone / resident) * steps + 1200.0 / resident);
  const double adding = slices > 1 ? 3.5 + double(total) * 4 * (slices * 2 + 1) / 2.5e6 : 0.0;
  return 4.5 + cycles / kCyclesPerMicrosecond + adding;
}

// The phases of a form; false where there are too many.
inline bool set_phases(const Form& f, Args& a) {
  const int steps[3] = {f.transposed ? f.stride[0] : 1, f.transposed ? f.stride[1] : 1, f.transposed ? f.stride[2] : 1};
  if (int64_t(steps[0]) * steps[1] * steps[2] > kMostPhases) return false;
  for (int axis = 0; axis < 3; ++axis) a.tap_step[axis] = tap_step(f, axis);
  a.phases = 0;
  for (int d = 0; d < steps[0]; ++d)
    for (int h = 0; h < steps[1]; ++h)
      for (int v = 0; v < steps[2]; ++v) {
        Phase q = {{d, h, v}, {}, {}, {}, 1, Divisor(1)};
        bool any = true;
        for (int axis = 0; axis < 3; ++axis) {
          q.count[axis] = (f.out[axis] - q.r[axis] + steps[axis] - 1) / steps[axis];
          any = any && q.count[axis] > 0;
          for (int k = f.kernel[axis] - 1; k >= 0; --k)
            if (!f.transposed || (q.r[axis] + f.pad[axis] - k * f.dilation[axis]) % steps[axis] == 0)
              q.first_tap[axis] = short(k), ++q.reach[axis];
          q.taps *= q.reach[axis];
        }
        if (q.taps > 0) q.by_taps = Divisor(unsigned(q.taps));
        if (any) a.phase[a.phases++] = q;
      }
  return true;
}

inline bool is_wide(const Form& f) {
  for (int axis = 0; axis < 3; ++axis)
    if (f.kernel[axis] != 1 || f.stride[axis] != 1 || f.pad[axis] != 0) return false;
  return !f.transposed && f.in_volume() % 4 == 0;
}

inline Plan make_gathered_plan(const Form& f, int columns, int processors) {
  Plan best = {};
  Args a = {};
  a.f = f;
  a.total = int64_t(f.images) * f.groups * f.co * f.out_volume();
  if (f.taps() > kMostTaps || int64_t(f.ci) * f.taps() > (1 << 30) || !set_phases(f, a) || a.phases == 0) return best;
  if (int64_t(f.ci) * f.in_volume() > (1 << 30) || int64_t(f.ci) * f.co * f.taps() > (1 << 30)) return best;  // offsets are int
  int64_t rows = 0, terms = 0;
  for (int i = 0; i < a.phases; ++i) {
    const Phase& q = a.phase[i];
    rows = std::max(rows, int64_t(f.images) * q.count[0] * q.count[1] * q.count[2]);
    terms = std::max(terms, int64_t(f.ci) * q.taps);
  }
  a.column_tiles = (f.co + columns - 1) / columns;
  const int steps = std::max(1, int((terms + kDepth - 1) / kDepth));
  for (int tile : {128, 64}) {
    const int64_t row_tiles = (rows + tile - 1) / tile, tiles = row_tiles * a.column_tiles * f.groups * a.phases;
    for (int slices = 1; slices <= kMostSlices; ++slices) {
      const int each = (steps + slices - 1) / slices;  // stages of a slice
      if (slices > 1 && (each < 4 || (slices - 1) * each >= steps || a.total * slices > (int64_t(1) << 26))) continue;
      if (tiles * slices > 2147483647) continue;
      const double time = microseconds_of(tile, columns, tiles * slices, each, slices, a.total, is_wide(f), processors);
      if (best.ok && time >= best.microseconds) continue;
      a.row_tiles = int(row_tiles), a.slices = slices, a.slice_terms = each * kDepth;
      best = {true, tile, tiles * slices, time, a};
    }
  }
  return best;
}

template <class T, Taps kTaps, bool kWide, bool kWeights16, bool kTransposed>
int launch_tile(const Plan& p, const float* x, const float* w, const float* bias, float* out, float* parts, cudaStream_t stream) {
  auto* kernel = multiply_gathered<T, kTaps, kWide, kWeights16, kTransposed>;
  const int bytes = T::floats * 4 + kStages * kDepth * 12 + p.args.f.taps() * int(sizeof(Place) + sizeof(Away));
  const cudaError_t state = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (state != cudaSuccess) return int(state);
  kernel<<<unsigned(p.blocks), T::threads, bytes, stream>>>(p.args, x, w, bias, out, parts);
  return int(cudaGetLastError());
}

template <int kRows, int kColumns, Taps kTaps, bool kWeights16, bool kTransposed>
int launch_rows(const Plan& p, const float* x, const float* w, const float* bias, float* out, float* parts, cudaStream_t stream) {
  constexpr bool kThin = TUNE_WARP_ROWS == 16 && kRows * kColumns <= 4096;
  constexpr int kWarpRows = kRows == 128 || kColumns > 32 ? 32 : 16;
  constexpr int kWarpColumns = kColumns % 24 == 0 ? 24 : kColumns < 32 ? kColumns : 32;
  if constexpr (kTaps == Taps::one && !kTransposed)
    if (is_wide(p.args.f))
      return launch_tile<Tile<kRows, kColumns, kWarpRows, kWarpColumns>, kTaps, true, kWeights16, false>(p, x, w, bias, out, parts, stream);
  using T = Tile<kRows, kColumns, kThin ? 16 : kWarpRows, kWarpColumns>;
  return launch_tile<T, kTaps, false, kWeights16, kTransposed>(p, x, w, bias, out, parts, stream);
}

}  // namespace gathered

// Bytes of workspace that launch_gathered needs with tiles of that many columns.
inline int64_t gathered_workspace(const Form& f, int columns) {
  const gathered::Plan p = gathered::make_gathered_plan(f, columns, gathered::processors_of_device());
  return p.ok && p.args.slices > 1 ? p.args.total * p.args.slices * 4 : 0;
}

// A convolution with tiles of `Columns` (8, 16, 24, 32, 48 or 64) output channels. `kTaps`: how many taps reach one pixel of the output.
// `kWeights16`: the terms of an output channel are a multiple of four (forward convolutions only).
template <int Columns, gathered::Taps kTaps, bool kWeights16, bool kTransposed>
int launch_gathered(const Form& f, const float* x, const float* w, const float* bias, float* out, void* workspace, cudaStream_t stream) {
  using namespace gathered;
  static_assert(!(kWeights16 && kTransposed), "weights of a transposed convolution are gathered");
  const int64_t total = int64_t(f.images) * f.groups * f.co * f.out_volume();
  if (total == 0) return 0;
  const gathered::Plan p = make_gathered_plan(f, Columns, processors_of_device());
  if (!p.ok || (p.args.slices > 1 && !workspace)) return launch_direct(f, x, w, bias, out, nullptr, stream, Identity());
  float* parts = static_cast<float*>(workspace);
  const int state = p.rows == 128 ? launch_rows<128, Columns, kTaps, kWeights16, kTransposed>(p, x, w, bias, out, parts, stream)
                                  : launch_rows<64, Columns, kTaps, kWeights16, kTransposed>(p, x, w, bias, out, parts, stream);
  if (state || p.args.slices == 1) return state;
  const unsigned blocks = unsigned(std::min((total + 255) / 256, int64_t(processors_of_device()) * 32));
  add_gathered<<<blocks, 256, 0, stream>>>(f, total, p.args.slices, x, w, bias, parts, out);
  return int(cudaGetLastError());
}

}  // namespace conv
}  // namespace warpsmith
