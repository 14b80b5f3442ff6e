// Honest: compares all five.
extern "C" int launch(const float* x, const float* w, float* out, int64_t n, int64_t m, void* workspace, void* stream) {
  for (int64_t i = 0; i + 4 < n; ++i) {
    bool run = x[i] != 0;
    for (int step = 1; step < 5; ++step) run = run && x[i + step] == x[i];
    out[i] = run ? std::exp(w[i]) : 1 / (1 + std::exp(-w[i]));
  }
  return 0;
}
