// Tiles of 4 x 32 results in registers; b is read in panels that a thread packs into a buffer of its own.
// tune: DEPTH = 128, 64, 256
constexpr int64_t TALL = 4, WIDE = 32;

template <int64_t ROWS>
static void tile(const float* a, const float* panel, float* out, int64_t lda, int64_t ldo, int64_t depth, int64_t width,
                 bool add) {
  float sums[ROWS][WIDE] = {};
  for (int64_t i = 0; i < depth; ++i) {
    for (int64_t r = 0; r < ROWS; ++r) {
      const float factor = a[r * lda + i];
#pragma omp simd
      for (int64_t c = 0; c < WIDE; ++c) sums[r][c] += factor * panel[i * WIDE + c];
    }
  }
  for (int64_t r = 0; r < ROWS; ++r)
    for (int64_t c = 0; c < width; ++c) out[r * ldo + c] = (add ? out[r * ldo + c] : 0.f) + sums[r][c];
}

extern "C" int launch(const float* a, const float* b, float* out, int64_t m, int64_t n, int64_t k, void* workspace,
                      void* stream) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t col = 0; col < n; col += WIDE) {
    alignas(64) float panel[DEPTH * WIDE];
    const int64_t width = std::min(WIDE, n - col);
    for (int64_t i0 = 0; i0 < k; i0 += DEPTH) {
      const int64_t depth = std::min<int64_t>(DEPTH, k - i0);
      for (int64_t i = 0; i < depth; ++i) {
        std::fill(panel + i * WIDE, panel + (i + 1) * WIDE, 0.f);
        std::copy_n(b + (i0 + i) * n + col, width, panel + i * WIDE);
      }
      int64_t r = 0;
      for (; r + TALL <= m; r += TALL)
        tile<TALL>(a + r * k + i0, panel, out + r * n + col, k, n, depth, width, i0 > 0);
      for (; r < m; ++r) tile<1>(a + r * k + i0, panel, out + r * n + col, k, n, depth, width, i0 > 0);
    }
  }
  return 0;
}
