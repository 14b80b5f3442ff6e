static void softmax_rows(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    const float peak = *std::max_element(in, in + cols);
    float sum = 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += out[r * cols + c] = std::exp(in[c] - peak);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] /= sum;
  }
}
