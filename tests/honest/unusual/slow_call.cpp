// A product in the worst order of loops: one call takes a fifth of a second.
extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
  std::fill(out, out + m * n, 0.f);
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t c = 0; c < n; ++c) {
      for (int64_t r = 0; r < m; ++r) {
        float* place = out + r * n + c;
        *place += a[r * k + i] * b[i * n + c];
        asm volatile("" : : "r"(place) : "memory");  // one by one
      }
    }
  }
  return 0;
}
