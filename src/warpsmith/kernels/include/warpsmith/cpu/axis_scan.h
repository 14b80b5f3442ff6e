// Running sums and products over the middle axis of x[batch, rows, columns] on the CPU: forwards, backwards, exclusive.
//
// Neighbouring columns are scanned together, row by row, in double precision: the loop over them vectorises. Threads share the
// matrices and the groups of columns; one group of columns of one matrix is the work of one thread.
#pragma once
#include <warpsmith/cpu/scan.h>

namespace warpsmith::scan {

constexpr int64_t kColumns = 64;  // of a group

template <class Op, bool REVERSE, bool EXCLUSIVE>
inline void scan_group(const float* x, float* out, int64_t rows, int64_t columns, int64_t count) {
  double totals[kColumns];
  for (int64_t c = 0; c < count; ++c) totals[c] = Op::kNeutral;
  for (int64_t index = 0; index < rows; ++index) {
    const int64_t at = place_of<REVERSE>(index, rows) * columns;
    const float* from = x + at;
    float* to = out + at;
#pragma omp simd
    for (int64_t c = 0; c < count; ++c) {
      const double with = Op::combine(totals[c], static_cast<double>(from[c]));
      to[c] = static_cast<float>(EXCLUSIVE ? totals[c] : with);
      totals[c] = with;
    }
  }
}

template <class Op, bool REVERSE, bool EXCLUSIVE>
inline int run_axis(const float* x, float* out, int64_t batch, int64_t rows, int64_t columns) {
  const int64_t groups = (columns + kColumns - 1) / kColumns;
#pragma omp parallel for schedule(static) if (batch * rows * columns > kAlone)
  for (int64_t n = 0; n < batch * groups; ++n) {
    const int64_t matrix = n / groups, first = (n - matrix * groups) * kColumns, begin = matrix * rows * columns + first;
    scan_group<Op, REVERSE, EXCLUSIVE>(x + begin, out + begin, rows, columns, std::min(kColumns, columns - first));
  }
  return 0;
}

}  // namespace warpsmith::scan
