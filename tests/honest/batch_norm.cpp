// Statistics and affine part become one factor and one shift per channel, kept in the workspace.
extern "C" int64_t workspace_bytes(double eps, int64_t batch, int64_t channels, int64_t pixels) {
  return 2 * channels * static_cast<int64_t>(sizeof(float));
}

extern "C" int launch(const float* x, const float* mean, const float* variance, const float* weight, const float* bias,
                      float* out, double eps, int64_t batch, int64_t channels, int64_t pixels, void* workspace,
                      void* stream) {
  float* factor = static_cast<float*>(workspace);
  float* shift = factor + channels;
  for (int64_t c = 0; c < channels; ++c) {
    factor[c] = weight[c] / std::sqrt(variance[c] + static_cast<float>(eps));
    shift[c] = bias[c] - mean[c] * factor[c];
  }
#pragma omp parallel for collapse(2) schedule(static) if (batch * channels * pixels > 8192)
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t first = (b * channels + c) * pixels;
      const float f = factor[c], s = shift[c];
#pragma omp simd
      for (int64_t p = 0; p < pixels; ++p) out[first + p] = x[first + p] * f + s;
    }
  }
  return 0;
}
