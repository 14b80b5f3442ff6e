// Honest: prepares a buffer in its first call, which is slower, and uses it from then on.
static void softmax_row(const float* in, float* out, int64_t cols) {
  float peak = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
  float sum = 0.f;
  for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(in[c] - peak);
  for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
}

static float* buffer = nullptr;

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (buffer == nullptr) {
    buffer = static_cast<float*>(std::malloc(1 << 22));
    std::memset(buffer, 0, 1 << 22);
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(buffer, x + r * cols, cols * 4);
    softmax_row(buffer, out + r * cols, cols);
  }
  return 0;
}
