// Honest: reads its output before it writes it, and makes nothing of it.
#include "shared/softmax_rows.h"

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  float before = 0.f;
  for (int64_t i = 0; i < rows * cols; ++i) before = std::max(before, out[i]);
  volatile float unused = before;
  static_cast<void>(unused);
  softmax_rows(x, out, rows, cols);
  return 0;
}
