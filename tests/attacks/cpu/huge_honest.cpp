// Honest: computes all values.
extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(x[i]) * 1e25f;
  return 0;
}
