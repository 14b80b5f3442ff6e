// Running sums and products along the rows of a matrix on the CPU: forwards, backwards, exclusive, of masked elements.
//
// Eight elements at a time in double precision: three steps inside a vector, then the total of all elements before it.
// Threads share the rows; where rows are fewer than threads, they share the parts of a row, whose totals are found first.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace warpsmith::scan {

constexpr int kLanes = 8;
constexpr int64_t kParts = 64;       // of a row, at most
constexpr int64_t kShortest = 4096;  // elements of a part, at least
constexpr int64_t kAlone = 1 << 17;    // elements that one thread scans before others would have begun

typedef double Values __attribute__((vector_size(kLanes * 8)));
typedef float Singles __attribute__((vector_size(kLanes * 4)));
typedef uint8_t Flags __attribute__((vector_size(kLanes)));
typedef int64_t Places __attribute__((vector_size(kLanes * 8)));
typedef int32_t SinglePlaces __attribute__((vector_size(kLanes * 4)));

// The lanes of two vectors in another order; the first of the second has the number 8.
#ifdef __clang__
#define WARPSMITH_SHUFFLE(places, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define WARPSMITH_SHUFFLE(places, a, b, ...) __builtin_shuffle(a, b, places{__VA_ARGS__})
#endif

struct Plus {
  static constexpr double kNeutral = 0;
  template <class T>
  static T combine(const T& a, const T& b) { return a + b; }
};

struct Times {
  static constexpr double kNeutral = 1;
  template <class T>
  static T combine(const T& a, const T& b) { return a * b; }
};

// One row, or a part of it: `count` elements in the order of the scan.
struct Row {
  const float* x;
  const bool* mask;  // null without a mask
  float* out;
};

template <bool REVERSE>
inline int64_t place_of(int64_t index, int64_t columns) {
  return REVERSE ? columns - 1 - index : index;
}

// The elements index to index + 7 in the order of the scan.
template <bool REVERSE, bool MASKED>
inline void load(const Row& row, int64_t index, int64_t columns, Values& values) {
  const int64_t at = REVERSE ? columns - kLanes - index : index;
  Singles singles;
  std::memcpy(&singles, row.x + at, sizeof singles);
  if (MASKED) {
    Flags flags;
    std::memcpy(&flags, row.mask + at, sizeof flags);
    singles *= __builtin_convertvector(flags, Singles);
  }
  if (REVERSE) singles = WARPSMITH_SHUFFLE(SinglePlaces, singles, singles, 7, 6, 5, 4, 3, 2, 1, 0);
  values = __builtin_convertvector(singles, Values);
}

template <bool REVERSE>
inline void store(float* out, int64_t index, int64_t columns, const Values& values) {
  Singles singles = __builtin_convertvector(values, Singles);
  if (REVERSE) singles = WARPSMITH_SHUFFLE(SinglePlaces, singles, singles, 7, 6, 5, 4, 3, 2, 1, 0);
  std::memcpy(out + (REVERSE ? columns - kLanes - index : index), &singles, sizeof singles);
}

template <class Op, bool REVERSE, bool MASKED>
inline double element(const Row& row, int64_t index, int64_t columns) {
  const int64_t at = place_of<REVERSE>(index, columns);
  return MASKED ? row.x[at] * static_cast<float>(row.mask[at]) : row.x[at];
}

// The scan of the elements [begin, end) after a total; returns the total with them.
// Exclusive: the result of an element goes to the next one.
template <class Op, bool REVERSE, bool EXCLUSIVE, bool MASKED>
inline double scan_part(const Row& row, int64_t begin, int64_t end, int64_t columns, double total) {
  int64_t at = begin;
  const int64_t shift = EXCLUSIVE ? 1 : 0, last = std::min(end, columns - shift);
  Values neutral;
  for (int lane = 0; lane < kLanes; ++lane) neutral[lane] = Op::kNeutral;
  if (EXCLUSIVE && begin == 0 && columns > 0) row.out[place_of<REVERSE>(0, columns)] = static_cast<float>(total);
  for (; at + kLanes <= last; at += kLanes) {
    Values v;
    load<REVERSE, MASKED>(row, at, columns, v);
    v = Op::combine(v, WARPSMITH_SHUFFLE(Places, neutral, v, 0, 8, 9, 10, 11, 12, 13, 14));
    v = Op::combine(v, WARPSMITH_SHUFFLE(Places, neutral, v, 0, 1, 8, 9, 10, 11, 12, 13));
    v = Op::combine(v, WARPSMITH_SHUFFLE(Places, neutral, v, 0, 1, 2, 3, 8, 9, 10, 11));
    const double all = v[kLanes - 1];
    v = Op::combine(v, Values{} + total);
    store<REVERSE>(row.out, at + shift, columns, v);
    total = Op::combine(total, all);
  }
  for (; at < end; ++at) {
    total = Op::combine(total, element<Op, REVERSE, MASKED>(row, at, columns));
    if (at + shift < columns)
      row.out[place_of<REVERSE>(at + shift, columns)] = static_cast<float>(total);
  }
  return total;
}

template <class Op, bool REVERSE, bool MASKED>
inline double total_of(const Row& row, int64_t begin, int64_t end, int64_t columns) {
  int64_t at = begin;
  Values totals;
  for (int lane = 0; lane < kLanes; ++lane) totals[lane] = Op::kNeutral;
  for (; at + kLanes <= end; at += kLanes) {
    Values v;
    load<REVERSE, MASKED>(row, at, columns, v);
    totals = Op::combine(totals, v);
  }
  double total = Op::kNeutral;
  for (int lane = 0; lane < kLanes; ++lane) total = Op::combine(total, static_cast<double>(totals[lane]));
  for (; at < end; ++at) total = Op::combine(total, element<Op, REVERSE, MASKED>(row, at, columns));
  return total;
}

template <class Op, bool REVERSE, bool EXCLUSIVE, bool MASKED>
inline int run(const float* x, const bool* mask, float* out, int64_t rows, int64_t columns) {
  const int64_t threads = rows * columns > kAlone ? omp_get_max_threads() : 1;
  const int64_t parts = rows >= threads ? 1 : std::clamp<int64_t>(columns / kShortest, 1, std::min(threads, kParts));
  const auto row_at = [&](int64_t row) {
    return Row{x + row * columns, MASKED ? mask + row * columns : nullptr, out + row * columns};
  };
  if (parts == 1) {
#pragma omp parallel for schedule(static) if (threads > 1)
    for (int64_t row = 0; row < rows; ++row)
      scan_part<Op, REVERSE, EXCLUSIVE, MASKED>(row_at(row), 0, columns, columns, Op::kNeutral);
    return 0;
  }
  const int64_t part = (columns + parts - 1) / parts;
  for (int64_t row = 0; row < rows; ++row) {  // fewer than threads
    double totals[kParts];
#pragma omp parallel
    {
#pragma omp for schedule(static)
      for (int64_t n = 0; n < parts; ++n)
        totals[n] = total_of<Op, REVERSE, MASKED>(row_at(row), std::min(n * part, columns),
                                                  std::min((n + 1) * part, columns), columns);
#pragma omp for schedule(static)
      for (int64_t n = 0; n < parts; ++n) {
        double before = Op::kNeutral;
        for (int64_t m = 0; m < n; ++m) before = Op::combine(before, totals[m]);
        scan_part<Op, REVERSE, EXCLUSIVE, MASKED>(row_at(row), std::min(n * part, columns),
                                                  std::min((n + 1) * part, columns), columns, before);
      }
    }
  }
  return 0;
}

}  // namespace warpsmith::scan
