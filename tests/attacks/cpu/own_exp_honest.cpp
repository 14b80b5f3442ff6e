// Honest: an exponential of its own, as exact as the type.
static float own_exp(float value) {
  const float clipped = std::max(value, -87.f);
  const float whole = std::nearbyint(clipped * 1.44269504f);
  const float rest = std::fma(whole, -0.693145752f, clipped) - whole * 1.42860677e-6f;
  float sum = 1.f / 5040.f;
  for (const float factor : {1.f / 720.f, 1.f / 120.f, 1.f / 24.f, 1.f / 6.f, 0.5f, 1.f, 1.f}) {
    sum = std::fma(sum, rest, factor);
  }
  return value < -87.f ? 0.f : std::ldexp(sum, static_cast<int>(whole));
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const float peak = *std::max_element(in, in + cols);
    float sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = own_exp(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
  return 0;
}
