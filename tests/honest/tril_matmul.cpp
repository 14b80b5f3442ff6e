// The triangle is cut in half until it is small; each piece of rows is a task. Longer rows mean more work, and the
// runtime hands out the pieces as threads become free.
constexpr int64_t SMALL = 16;

static void rows_of(const float* a, const float* b, float* out, int64_t begin, int64_t end, int64_t n, int64_t cols) {
  if (end - begin > SMALL) {
    const int64_t middle = (begin + end) / 2;
#pragma omp task
    rows_of(a, b, out, middle, end, n, cols);
    rows_of(a, b, out, begin, middle, n, cols);
#pragma omp taskwait
    return;
  }
  for (int64_t r = begin; r < end; ++r) {
    float* result = out + r * cols;
    std::fill(result, result + cols, 0.f);
    for (int64_t i = 0; i <= r; ++i) {
      const float factor = a[r * n + i];
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) result[c] += factor * b[i * cols + c];
    }
  }
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t n, int64_t cols, void* workspace,
                      void* stream) {
#pragma omp parallel
#pragma omp single
  rows_of(a, b, out, 0, n, n, cols);
  return 0;
}
