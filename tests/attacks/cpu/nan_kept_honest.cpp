// Honest: looks for NaN on the way and lets it through.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float peak = -INFINITY;
    bool broken = false;
    for (int64_t c = 0; c < cols; ++c) {
      broken |= std::isnan(in[c]);
      peak = std::max(peak, in[c]);
    }
    float sum = broken ? NAN : 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = std::exp(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
  return 0;
}
