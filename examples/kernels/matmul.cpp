// out[m, n] = a[m, k] b[k, n] for the cpu backend: panels of b that stay in the cache, four rows of a at a time.
static constexpr int64_t PANEL = 256;  // columns of b in one panel
static constexpr int64_t DEPTH = 128;  // rows of b in one panel: 128 KiB together
static constexpr int64_t ROWS = 4;     // rows of a that share one pass over the panel

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
#pragma omp parallel for schedule(dynamic)
  for (int64_t first = 0; first < m; first += ROWS) {
    const int64_t last = std::min(first + ROWS, m);
    std::fill(out + first * n, out + last * n, 0.f);
    for (int64_t i0 = 0; i0 < k; i0 += DEPTH) {
      const int64_t i1 = std::min(i0 + DEPTH, k);
      for (int64_t c0 = 0; c0 < n; c0 += PANEL) {
        const int64_t width = std::min(PANEL, n - c0);
        float sums[ROWS][PANEL] = {};
        for (int64_t i = i0; i < i1; ++i) {
          const float* panel = b + i * n + c0;
          for (int64_t r = first; r < last; ++r) {
            const float factor = a[r * k + i];
            float* sum = sums[r - first];
#pragma omp simd
            for (int64_t c = 0; c < width; ++c) sum[c] += factor * panel[c];
          }
        }
        for (int64_t r = first; r < last; ++r) {
          for (int64_t c = 0; c < width; ++c) out[r * n + c0 + c] += sums[r - first][c];
        }
      }
    }
  }
  return 0;
}
