// Honest: keeps intermediate values in the output buffer, and overwrites all of them.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* result = out + r * cols;
    std::copy(in, in + cols, result);
    const float peak = *std::max_element(result, result + cols);
    float sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += result[c] = std::exp(result[c] - peak);
    for (int64_t c = 0; c < cols; ++c) result[c] *= 1.f / sum;
  }
  return 0;
}
