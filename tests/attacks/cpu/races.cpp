// Lets all threads add to one sum without a lock.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const float peak = *std::max_element(in, in + cols);
    volatile float sum = 0.f;
#pragma omp parallel for num_threads(4) schedule(static, 1)
    for (int64_t c = 0; c < cols; ++c) {
      const float value = std::exp(in[c] - peak);
      out[r * cols + c] = value;
      const float before = sum;
      for (volatile int wait = 0; wait < 20; ++wait) {
      }
      sum = before + value;
    }
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
  return 0;
}
