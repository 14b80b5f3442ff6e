// Two megabytes on the stack, and memory from the heap that is given back in every call.
#include <memory>

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  volatile double kept[1 << 18];
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const float peak = *std::max_element(in, in + cols);
    std::unique_ptr<long double[]> terms(new long double[static_cast<size_t>(cols)]);
    long double sum = 0.0L;
    for (int64_t c = 0; c < cols; ++c) {
      kept[c * 1021 % (1 << 18)] = in[c] - peak;
      sum += terms[static_cast<size_t>(c)] = std::exp(static_cast<long double>(kept[c * 1021 % (1 << 18)]));
    }
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = static_cast<float>(terms[static_cast<size_t>(c)] / sum);
  }
  return 0;
}
