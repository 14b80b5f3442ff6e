// Honest: keeps something between calls, but nothing of the data: a table and a counter.
static void softmax_row(const float* in, float* out, int64_t cols) {
  float peak = -INFINITY;
  for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
  float sum = 0.f;
  for (int64_t c = 0; c < cols; ++c) sum += out[c] = std::exp(in[c] - peak);
  for (int64_t c = 0; c < cols; ++c) out[c] /= sum;
}

static float powers[64];
static int calls = 0;

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  if (calls++ == 0) {
    for (int i = 0; i < 64; ++i) powers[i] = std::exp2(static_cast<float>(i - 32));
  }
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    softmax_row(x + r * cols, out + r * cols, cols);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] *= powers[32];  // by one
  }
  return 0;
}
