// Honest: finds the largest value of each row and adds up all exponentials.
#include "shared/cross_entropy.h"

extern "C" int launch(const float* x, const int64_t* y, float* out, int64_t rows, int64_t words, void* workspace,
                      void* stream) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r) loss += row_log_sum_exp(x + r * words, words) - x[r * words + y[r]];
  *out = static_cast<float>(loss / rows);
  return 0;
}
