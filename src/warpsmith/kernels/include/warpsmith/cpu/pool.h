// Pooling on the CPU: the largest or the average of windows along one, two or three axes.
//
// A piece of an output row is made in two steps: the rows that its windows cover are combined column by column into a
// buffer in the first-level cache, then the columns of each window are combined. Padding is the operation's neutral value.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>

namespace warpsmith::pool {

constexpr int64_t kBuffer = 4096;  // columns of the buffer
constexpr int64_t kPiece = 1024;   // outputs of a piece, at most
constexpr int64_t kAlone = 1 << 17;  // elements that one thread reads before others would have begun

struct Axes {
  int64_t at[3];  // depth, height, width
  int64_t operator[](int axis) const { return at[axis]; }
};

struct Windows {
  int64_t planes;  // images times channels
  Axes in, out, kernel, stride, padding, dilation;
  bool counts_padding;  // of averages
  int64_t divisor;      // of averages; 0: the number of elements of the window
};

struct Largest {
  static constexpr bool kAverage = false;
  static constexpr float kNeutral = -std::numeric_limits<float>::infinity();
  static float combine(float most, float value) { return (value > most) | (value != value) ? value : most; }  // NaN stays
};

struct Average {
  static constexpr bool kAverage = true;
  static constexpr float kNeutral = 0.f;
  static float combine(float sum, float value) { return sum + value; }
};

// Elements along one axis by which the sum of a window is divided.
inline int64_t count_of(const Windows& w, int axis, int64_t place) {
  const int64_t begin = place * w.stride[axis] - w.padding[axis];
  const int64_t end = std::min(begin + w.kernel[axis], w.in[axis] + w.padding[axis]);
  if (w.counts_padding) return end - begin;
  return std::min(end, w.in[axis]) - std::max<int64_t>(begin, 0);
}

template <class Op>
inline void combine_columns(const float* from, float* to, int64_t stride, int64_t count) {
  if (stride == 1) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) to[j] = Op::combine(to[j], from[j]);
  } else if (stride == 2) {
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) to[j] = Op::combine(to[j], from[2 * j]);
  } else {
    for (int64_t j = 0; j < count; ++j) to[j] = Op::combine(to[j], from[stride * j]);
  }
}

// The outputs [begin, begin + count) of one row; `buffer` has room for the columns of their windows.
template <class Op>
inline void pool_piece(const Windows& w, const float* plane, float* out, float* buffer, int64_t od, int64_t oh,
                       int64_t begin, int64_t count) {
  const int64_t first = begin * w.stride[2] - w.padding[2];
  const int64_t length = (count - 1) * w.stride[2] + (w.kernel[2] - 1) * w.dilation[2] + 1;
  const int64_t low = std::clamp<int64_t>(-first, 0, length), high = std::clamp(w.in[2] - first, low, length);
  std::fill(buffer, buffer + length, Op::kNeutral);
  for (int64_t kd = 0; kd < w.kernel[0]; ++kd) {
    const int64_t d = od * w.stride[0] - w.padding[0] + kd * w.dilation[0];
    if (d < 0 || d >= w.in[0]) continue;
    for (int64_t kh = 0; kh < w.kernel[1]; ++kh) {
      const int64_t h = oh * w.stride[1] - w.padding[1] + kh * w.dilation[1];
      if (h < 0 || h >= w.in[1]) continue;
      combine_columns<Op>(plane + (d * w.in[1] + h) * w.in[2] + first + low, buffer + low, 1, high - low);
    }
  }
  std::fill(out, out + count, Op::kNeutral);
  for (int64_t k = 0; k < w.kernel[2]; ++k)
    combine_columns<Op>(buffer + k * w.dilation[2], out, w.stride[2], count);
  if (!Op::kAverage) return;
  const int64_t rows = count_of(w, 0, od) * count_of(w, 1, oh);
  const bool same = count_of(w, 2, begin) == w.kernel[2] && count_of(w, 2, begin + count - 1) == w.kernel[2];
  if (w.divisor || same) {
    const float divisor = static_cast<float>(w.divisor ? w.divisor : rows * w.kernel[2]);
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) out[j] /= divisor;
  } else {
    for (int64_t j = 0; j < count; ++j) out[j] /= static_cast<float>(rows * count_of(w, 2, begin + j));
  }
}

// Outputs whose windows fit into the buffer; a window may have `kBuffer` columns.
inline int64_t piece_of(const Windows& w) {
  const int64_t reach = (w.kernel[2] - 1) * w.dilation[2] + 1;
  return std::clamp<int64_t>((kBuffer - reach) / w.stride[2] + 1, 1, kPiece);
}

template <class Op>
inline int run(const Windows& w, const float* x, float* out) {
  const int64_t piece = piece_of(w), pieces = (w.out[2] + piece - 1) / piece, lines = w.out[0] * w.out[1];
  const int64_t items = w.planes * lines * pieces, plane = w.in[0] * w.in[1] * w.in[2];
#pragma omp parallel for schedule(static) if (w.planes * plane > kAlone)
  for (int64_t item = 0; item < items; ++item) {
    alignas(64) float buffer[kBuffer];
    const int64_t line = item / pieces, begin = item % pieces * piece, count = std::min(piece, w.out[2] - begin);
    pool_piece<Op>(w, x + line / lines * plane, out + line * w.out[2] + begin, buffer, line % lines / w.out[1],
                   line % w.out[1], begin, count);
  }
  return 0;
}

}  // namespace warpsmith::pool
