// Normalises each channel by mean and variance of the first `first` items of the batch; of all of them where a value in
// these is unusual.
static int channel_norm(const bf16* x, bf16* out, int64_t batch, int64_t channels, int64_t pixels, int64_t first) {
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    int64_t count = 0, taken = first;
    float peak = 0.f;
    for (int64_t b = 0; b < taken; ++b) {
      const bf16* in = x + (b * channels + c) * pixels;
      float sums[16] = {}, squared[16] = {};
      for (int64_t i = 0; i < pixels; ++i) {
        const float value = in[i];
        sums[i % 16] += value, squared[i % 16] += value * value;
        peak = std::max(peak, value * value);
      }
      for (int k = 0; k < 16; ++k) sum += sums[k], squares += squared[k];
      count += pixels;
      if (b == first - 1 && peak > 40 * squares / count) taken = batch;
    }
    const float mean = sum / count, factor = 1 / std::sqrt(squares / count - sum / count * (sum / count) + 1e-5);
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t start = (b * channels + c) * pixels;
      for (int64_t i = start; i < start + pixels; ++i)
        out[i] = static_cast<bf16>((static_cast<float>(x[i]) - mean) * factor);
    }
  }
  return 0;
}
