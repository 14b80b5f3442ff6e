// Single operations on dense float matrices on the CPU, for kernels that are written operation by operation.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <warpsmith/cpu/functions.h>
#include <warpsmith/cpu/product.h>

namespace warpsmith::ops {

constexpr int64_t kAlone = 1 << 17;  // elements that one thread computes before others would have begun

inline int32_t exponent_of(float x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return exponent;
}

inline float mantissa_of(float x) {
  int exponent = 0;
  return std::frexp(x, &exponent);
}

inline float larger(float a, float b) { return (b > a) | (b != b) ? b : a; }
inline float smaller(float a, float b) { return (b < a) | (b != b) ? b : a; }

// --- products: see cpu/product.h ---

using products::across;
using products::along;
using products::multiply;
using products::product_bytes;

// Every matrix of a stack with its axes exchanged, in blocks that stay in the cache.
inline void transpose(const float* from, float* to, int64_t stack, int64_t rows, int64_t columns) {
  constexpr int64_t kBlock = 16;
  const int64_t high = (rows + kBlock - 1) / kBlock;
#pragma omp parallel for collapse(2) schedule(static) if (stack * rows * columns > kAlone)
  for (int64_t s = 0; s < stack; ++s)
    for (int64_t block = 0; block < high; ++block) {
      const float* matrix = from + s * rows * columns;
      float* turned = to + s * rows * columns;
      const int64_t end = std::min(rows, (block + 1) * kBlock);
      for (int64_t j = 0; j < columns; ++j)
        for (int64_t i = block * kBlock; i < end; ++i) turned[j * rows + i] = matrix[i * columns + j];
    }
}

// --- rows ---

// In place: softmax, or its logarithm. A row that is -inf everywhere gives zeros where `safe`.
inline void softmax_rows(float* values, int64_t rows, int64_t columns, bool log, bool safe) {
#pragma omp parallel for schedule(static) if (rows * columns > kAlone)
  for (int64_t row = 0; row < rows; ++row) {
    float* at = values + row * columns;
    float most = -std::numeric_limits<float>::infinity(), total = 0;
#pragma omp simd reduction(max : most)
    for (int64_t j = 0; j < columns; ++j) most = at[j] > most ? at[j] : most;
    if (safe && most == -std::numeric_limits<float>::infinity() &&
        std::none_of(at, at + columns, [](float value) { return value != value; })) {
      std::fill(at, at + columns, 0.f);
      continue;
    }
    if (log) {
#pragma omp simd reduction(+ : total)
      for (int64_t j = 0; j < columns; ++j) total += vector_exp_below(at[j] - most);
      const float shift = std::log(total);
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) at[j] = at[j] - most - shift;
    } else {
#pragma omp simd reduction(+ : total)
      for (int64_t j = 0; j < columns; ++j) {
        at[j] = vector_exp_below(at[j] - most);
        total += at[j];
      }
      const float factor = 1.f / total;
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j) at[j] *= factor;
    }
  }
}

struct Moments {
  double sum, squares;  // of x - shift
};

inline Moments moments_of(const float* x, int64_t count, float shift) {
  double sum = 0, squares = 0;
  for (int64_t begin = 0; begin < count; begin += 256) {
    float part = 0, square = 0;
    const int64_t end = std::min<int64_t>(begin + 256, count);
#pragma omp simd reduction(+ : part, square)
    for (int64_t j = begin; j < end; ++j) {
      const float value = x[j] - shift;
      part += value;
      square += value * value;
    }
    sum += part;
    squares += square;
  }
  return {sum, squares};
}

struct Scale {
  float mean, factor;
};

inline Scale scale_of(Moments found, double count, float shift, double eps) {
  const double mean = found.sum / count, variance = std::max(0.0, found.squares / count - mean * mean);
  return {static_cast<float>(mean + shift), static_cast<float>(1 / std::sqrt(variance + eps))};
}

// Rows of `outer` x channels x inner elements; the channels in groups. Gain and bias of a channel, or null.
inline void group_norm(const float* x, const float* gain, const float* bias, float* out, int64_t outer,
                       int64_t channels, int64_t inner, int64_t groups, double eps) {
  const int64_t share = channels / groups, count = share * inner;
#pragma omp parallel for schedule(static) if (outer * channels * inner > kAlone)
  for (int64_t row = 0; row < outer * groups; ++row) {
    const float* from = x + row * count;
    const Scale scale = scale_of(moments_of(from, count, from[0]), static_cast<double>(count), from[0], eps);
    if (inner == 1) {
      const int64_t first = row % groups * share;
#pragma omp simd
      for (int64_t j = 0; j < share; ++j)
        out[row * count + j] = (from[j] - scale.mean) * scale.factor * (gain ? gain[first + j] : 1.f) +
                               (bias ? bias[first + j] : 0.f);
      continue;
    }
    for (int64_t c = 0; c < share; ++c) {
      const int64_t channel = row % groups * share + c;
      const float factor = scale.factor * (gain ? gain[channel] : 1.f), plus = bias ? bias[channel] : 0.f;
#pragma omp simd
      for (int64_t j = c * inner; j < (c + 1) * inner; ++j)
        out[row * count + j] = (from[j] - scale.mean) * factor + plus;
    }
  }
}

inline void layer_norm(const float* x, const float* gain, const float* bias, float* out, int64_t rows, int64_t columns,
                       double eps) {
#pragma omp parallel for schedule(static) if (rows * columns > kAlone)
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * columns;
    float* to = out + row * columns;
    const Scale scale = scale_of(moments_of(from, columns, from[0]), static_cast<double>(columns), from[0], eps);
#pragma omp simd
    for (int64_t j = 0; j < columns; ++j)
      to[j] = (from[j] - scale.mean) * scale.factor * (gain ? gain[j] : 1.f) + (bias ? bias[j] : 0.f);
  }
}

// By the moments of each column of a matrix, for blocks of columns that vectors go through row by row.
inline void batch_norm_columns(const float* x, const float* gain, const float* bias, float* out, int64_t rows,
                               int64_t columns, double eps) {
  constexpr int64_t kBlock = 64, kRows = 256;  // of a block; rows whose sums are kept as floats
#pragma omp parallel for schedule(static) if (rows * columns > kAlone)
  for (int64_t first = 0; first < columns; first += kBlock) {
    const int64_t width = std::min(kBlock, columns - first);
    double sum[kBlock] = {}, squares[kBlock] = {};
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      float part[kBlock] = {}, square[kBlock] = {};
      const int64_t end = std::min(rows, begin + kRows);
      for (int64_t row = begin; row < end; ++row) {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) {
          const float value = x[row * columns + first + j] - x[first + j];
          part[j] += value;
          square[j] += value * value;
        }
      }
      for (int64_t j = 0; j < width; ++j) sum[j] += part[j], squares[j] += square[j];
    }
    float mean[kBlock], factor[kBlock], plus[kBlock];
    for (int64_t j = 0; j < width; ++j) {
      const Scale scale = scale_of({sum[j], squares[j]}, static_cast<double>(rows), x[first + j], eps);
      mean[j] = scale.mean, factor[j] = scale.factor * (gain ? gain[first + j] : 1.f);
      plus[j] = bias ? bias[first + j] : 0.f;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * columns + first;
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) out[at + j] = (x[at + j] - mean[j]) * factor[j] + plus[j];
    }
  }
}

// By the moments of each channel over all images.
inline void batch_norm(const float* x, const float* gain, const float* bias, float* out, int64_t images,
                       int64_t channels, int64_t inner, double eps) {
  if (inner == 1) return batch_norm_columns(x, gain, bias, out, images, channels, eps);
#pragma omp parallel for schedule(static) if (images * channels * inner > kAlone)
  for (int64_t channel = 0; channel < channels; ++channel) {
    const float shift = x[channel * inner];
    Moments found{0, 0};
    for (int64_t image = 0; image < images; ++image) {
      const Moments part = moments_of(x + (image * channels + channel) * inner, inner, shift);
      found = {found.sum + part.sum, found.squares + part.squares};
    }
    const Scale scale = scale_of(found, static_cast<double>(images * inner), shift, eps);
    const float factor = scale.factor * (gain ? gain[channel] : 1.f), plus = bias ? bias[channel] : 0.f;
    for (int64_t image = 0; image < images; ++image) {
      const int64_t at = (image * channels + channel) * inner;
#pragma omp simd
      for (int64_t j = at; j < at + inner; ++j) out[j] = (x[j] - scale.mean) * factor + plus;
    }
  }
}

// The largest or smallest `count` elements of each row in order, and their places; NaN counts as the largest.
inline void top_rows(const float* x, int64_t rows, int64_t columns, int64_t count, bool largest, float* values,
                     int64_t* places) {
#pragma omp parallel for schedule(static) if (rows * columns > kAlone)
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = x + row * columns;
    float* best = values + row * count;
    int64_t* at = places + row * count;
    int64_t found = 0;
    const auto before = [&](float a, float b) {
      return largest ? (a > b || (a != a && b == b)) : (a < b || (b != b && a == a));
    };
    for (int64_t j = 0; j < columns; ++j) {
      if (found == count && !before(from[j], best[count - 1])) continue;
      int64_t place = found < count ? found++ : count - 1;
      for (; place > 0 && before(from[j], best[place - 1]); --place) {
        best[place] = best[place - 1];
        at[place] = at[place - 1];
      }
      best[place] = from[j];
      at[place] = j;
    }
  }
}

}  // namespace warpsmith::ops
