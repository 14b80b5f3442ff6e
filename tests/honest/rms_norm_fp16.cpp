// Every thread widens one row at a time into a buffer of its own, and rounds once at the end.
extern "C" int launch(const _Float16* x, const _Float16* weight, _Float16* out, double eps, int64_t rows, int64_t cols,
                      void* workspace, void* stream) {
  std::vector<float> wide_weight(cols);
  for (int64_t c = 0; c < cols; ++c) wide_weight[c] = static_cast<float>(weight[c]);
#pragma omp parallel
  {
    std::vector<float> row(cols);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      float squares = 0.f;
#pragma omp simd reduction(+ : squares)
      for (int64_t c = 0; c < cols; ++c) {
        row[c] = static_cast<float>(x[r * cols + c]);
        squares += row[c] * row[c];
      }
      const float scale = 1.f / std::sqrt(squares / static_cast<float>(cols) + static_cast<float>(eps));
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c)
        out[r * cols + c] = static_cast<_Float16>(row[c] * scale * wide_weight[c]);
    }
  }
  return 0;
}
