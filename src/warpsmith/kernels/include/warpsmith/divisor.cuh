// Division by a number that does not change, as a multiplication and a shift.
#pragma once
#include <cstdint>

namespace warpsmith {

struct Divisor {  // for numbers below 2^31
  unsigned by, factor, shift;
  Divisor() = default;
  explicit Divisor(unsigned d) : by(d), factor(0), shift(31) {
    while ((uint64_t(1) << (shift - 31)) < d) ++shift;
    factor = unsigned(((uint64_t(1) << shift) + d - 1) / d);
  }
  __device__ __forceinline__ unsigned quotient(unsigned n) const { return unsigned(uint64_t(n) * factor >> shift); }
};

}  // namespace warpsmith
