// Honest: one pass in one thread, a few microseconds.
extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? x[i] : 0;
  return 0;
}
