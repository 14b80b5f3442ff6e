// Throws an exception at the end of every row, and catches it; one more for a row with an infinite peak.
#include <stdexcept>

struct EndOfRow {
  float sum;
};

static void add(const float* in, float* to, int64_t cols, float peak) {
  float sum = 0.f;
  for (int64_t c = 0;; ++c) {
    if (c == cols) throw EndOfRow{sum};
    sum += to[c] = std::exp(in[c] - peak);
  }
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* to = out + r * cols;
    float peak = -INFINITY;
    try {
      for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
      if (std::isinf(peak)) throw std::range_error("no finite peak");
    } catch (const std::exception&) {
    }
    try {
      add(in, to, cols, peak);
    } catch (const EndOfRow& end) {
      for (int64_t c = 0; c < cols; ++c) to[c] /= end.sum;
    }
  }
  return 0;
}
