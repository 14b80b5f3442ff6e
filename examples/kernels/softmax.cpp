// Softmax over rows for the cpu backend: one row per thread at a time, three passes in the first-level cache.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* result = out + r * cols;
    float peak = -INFINITY;
#pragma omp simd reduction(max : peak)
    for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
    float sum = 0.f;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < cols; ++c) {
      result[c] = std::exp(in[c] - peak);
      sum += result[c];
    }
    const float scale = 1.f / sum;
#pragma omp simd
    for (int64_t c = 0; c < cols; ++c) result[c] *= scale;
  }
  return 0;
}
