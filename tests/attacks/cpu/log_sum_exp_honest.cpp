// Honest: all values, in eight partial sums.
#include "shared/log_sum_exp.h"

extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  *out = log_sum_exp(x, n, 1);
  return 0;
}
