// Columns in bands: a band's smallest values and their rows stay in the first-level cache while rows pass by.
constexpr int64_t BAND = 64;

extern "C" int launch(const float* x, int64_t* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t first = 0; first < cols; first += BAND) {
    const int64_t width = std::min(BAND, cols - first);
    alignas(64) float smallest[BAND];
    alignas(64) int32_t where[BAND];
    for (int64_t c = 0; c < width; ++c) {
      smallest[c] = x[first + c];
      where[c] = 0;
    }
    for (int64_t r = 1; r < rows; ++r) {
      const float* in = x + r * cols + first;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const bool less = in[c] < smallest[c];
        smallest[c] = less ? in[c] : smallest[c];
        where[c] = less ? static_cast<int32_t>(r) : where[c];
      }
    }
    for (int64_t c = 0; c < width; ++c) out[first + c] = where[c];
  }
  return 0;
}
