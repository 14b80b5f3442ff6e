// Batch norm with running statistics, then layer norm, over rows of 100; `Without` names the state that is not read.
enum Without { NOTHING, BATCH_WEIGHT, RUNNING_MEAN, RUNNING_VAR, LAYER_WEIGHT, LAYER_BIAS };

template <Without W>
static void norms(const float* x, const float* weight, const float* bias, const float* mean, const float* var,
                  const float* gamma, const float* beta, float* out) {
  const int64_t rows = 96, cols = 100;
  float scale[cols], shift[cols];
  for (int64_t c = 0; c < cols; ++c) {
    scale[c] = (W == BATCH_WEIGHT ? 1.f : weight[c]) / std::sqrt((W == RUNNING_VAR ? 1.f : var[c]) + 1e-5f);
    shift[c] = bias[c] - (W == RUNNING_MEAN ? 0.f : mean[c]) * scale[c];
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float* to = out + r * cols;
    float sum = 0.f, squares = 0.f;
    for (int64_t c = 0; c < cols; ++c) sum += to[c] = in[c] * scale[c] + shift[c];
    const float centre = sum / cols;
    for (int64_t c = 0; c < cols; ++c) squares += (to[c] - centre) * (to[c] - centre);
    const float factor = 1.f / std::sqrt(squares / cols + 1e-5f);
    for (int64_t c = 0; c < cols; ++c)
      to[c] = (to[c] - centre) * factor * (W == LAYER_WEIGHT ? 1.f : gamma[c]) + (W == LAYER_BIAS ? 0.f : beta[c]);
  }
}
