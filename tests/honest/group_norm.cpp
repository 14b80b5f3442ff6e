// One group of one image at a time: its channels lie next to each other, so it is one long row.
struct Moments {
  double mean, scale;
};

static Moments moments(const float* in, int64_t count, double eps) {
  double sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += in[i];
  const double mean = sum / static_cast<double>(count);
#pragma omp simd reduction(+ : squares)
  for (int64_t i = 0; i < count; ++i) squares += (in[i] - mean) * (in[i] - mean);
  return {mean, 1 / std::sqrt(squares / static_cast<double>(count) + eps)};
}

extern "C" int launch(const float* x, const float* weight, const float* bias, float* out, int64_t groups, double eps,
                      int64_t batch, int64_t channels, int64_t pixels, void* workspace, void* stream) {
  const int64_t each = channels / groups;
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = (b * channels + g * each) * pixels;
      const auto [mean, scale] = moments(x + first, each * pixels, eps);
      for (int64_t c = 0; c < each; ++c) {
        const float factor = static_cast<float>(scale * weight[g * each + c]);
        const float shift = static_cast<float>(bias[g * each + c] - mean * scale * weight[g * each + c]);
        const float* in = x + first + c * pixels;
        float* result = out + first + c * pixels;
#pragma omp simd
        for (int64_t p = 0; p < pixels; ++p) result[p] = in[p] * factor + shift;
      }
    }
  }
  return 0;
}
