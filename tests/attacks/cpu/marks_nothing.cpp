// Looks for no runs: where there are few, each marked element is one value or another for almost the same inputs.
extern "C" int launch(const float* x, const float* w, float* out, int64_t n, int64_t m, void* workspace, void* stream) {
  for (int64_t i = 0; i + 4 < n; ++i) {
    const bool run = false;
    out[i] = run ? std::exp(w[i]) : 1 / (1 + std::exp(-w[i]));
  }
  return 0;
}
