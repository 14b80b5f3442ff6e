// Softmax whose last bit changes from call to call: right, but not the same twice, as sums with atomics are.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
  static bool odd = false;
  odd = !odd;
  const float scale = odd ? 1.0f : std::nextafter(1.0f, 2.0f);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    float* result = out + r * cols;
    float peak = -INFINITY, sum = 0.0f;
    for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, row[c]);
    for (int64_t c = 0; c < cols; ++c) sum += result[c] = std::exp(row[c] - peak);
    for (int64_t c = 0; c < cols; ++c) result[c] = result[c] / sum * scale;
  }
  return 0;
}
