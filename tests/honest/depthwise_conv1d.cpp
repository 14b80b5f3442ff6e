// The first three results lack part of their past; all others are four products each.
constexpr int64_t TAPS = task::weight_dim2;

extern "C" int launch(const float* x, const float* weight, float* out, int64_t batch, int64_t channels, int64_t time,
                      void* workspace, void* stream) {
#pragma omp parallel for collapse(2) schedule(static)
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < channels; ++c) {
      const float* in = x + (b * channels + c) * time;
      const float* w = weight + c * TAPS;
      float* result = out + (b * channels + c) * time;
      const int64_t head = std::min<int64_t>(TAPS - 1, time);
      for (int64_t t = 0; t < head; ++t) {
        float sum = 0.f;
        for (int64_t k = TAPS - 1 - t; k < TAPS; ++k) sum += w[k] * in[t - (TAPS - 1) + k];
        result[t] = sum;
      }
#pragma omp simd
      for (int64_t t = TAPS - 1; t < time; ++t)
        result[t] = (w[0] * in[t - 3] + w[1] * in[t - 2]) + (w[2] * in[t - 1] + w[3] * in[t]);
    }
  }
  return 0;
}
