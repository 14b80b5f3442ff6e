// Honest: takes a shorter way where the whole input allows it, and looks at all of it to find out.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const float peak = *std::max_element(in, in + cols);
    const float shift = peak > -10.f && peak < 10.f ? 0.f : peak;
    float sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = std::exp(in[c] - shift);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
  return 0;
}
