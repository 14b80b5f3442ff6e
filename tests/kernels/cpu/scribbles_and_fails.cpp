// Right on the first workload; on the other it writes before its output and then reports an error.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    float peak = -INFINITY, sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) peak = std::fmax(peak, x[r * cols + c]);
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(x[r * cols + c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = std::exp(x[r * cols + c] - peak) / sum;
  }
  if (cols % 256 == 0) return 0;
  volatile float* before = out - 1;
  *before = 1.f;
  return 7;
}
