// Leaves its second output alone.
extern "C" int launch(const float* x, float* mean, float* peak, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0.0;
    for (int64_t c = 0; c < cols; ++c) sum += x[r * cols + c];
    mean[r] = static_cast<float>(sum / static_cast<double>(cols));
  }
  return 0;
}
