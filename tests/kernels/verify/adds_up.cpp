// Softmax that keeps a sum from its last call where the data is the same: right on fresh data, wrong the second time.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {
  static float last = 0.0f, kept = 0.0f;
  float mark = 0.0f;
  for (int64_t i = 0; i < rows * cols; ++i) mark += x[i] * static_cast<float>(i % 17);
  if (mark != last) kept = 0.0f;
  last = mark;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    float* result = out + r * cols;
    float peak = -INFINITY, sum = r == 0 ? kept : 0.0f;
    for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, row[c]);
    for (int64_t c = 0; c < cols; ++c) sum += result[c] = std::exp(row[c] - peak);
    for (int64_t c = 0; c < cols; ++c) result[c] /= sum;
    if (r == 0) kept = sum;
  }
  return 0;
}
