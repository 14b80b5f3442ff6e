// Honest: asks for a workspace and keeps intermediate values in it.
static void softmax_row(const float* in, float* out, int64_t cols) {
  float peak = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
  float sum = 0.f;
  for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(in[c] - peak);
  for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
}

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) { return rows * cols * 4; }

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  float* scratch = static_cast<float*>(workspace);
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    softmax_row(x + r * cols, scratch + r * cols, cols);
    std::memcpy(out + r * cols, scratch + r * cols, cols * 4);
  }
  return 0;
}
