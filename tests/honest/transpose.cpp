// Tiles of 32 x 32, so that neither side walks through memory in long strides.
template <typename T, int64_t TILE>
static void turn(const T* from, T* to, int64_t rows, int64_t cols) {
  for (int64_t c = 0; c < std::min(TILE, cols); ++c) to[c * rows] = from[c];
}

extern "C" int launch(const float* x, float* out, int64_t batch, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  constexpr int64_t TILE = 32;
#pragma omp parallel for collapse(3) schedule(static)
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c0 = 0; c0 < cols; c0 += TILE) {
      for (int64_t r0 = 0; r0 < rows; r0 += TILE) {
        const float* from = x + b * rows * cols + r0 * cols + c0;
        float* to = out + b * rows * cols + c0 * rows + r0;
        for (int64_t r = 0; r < std::min(TILE, rows - r0); ++r)
          turn<float, TILE>(from + r * cols, to + r, rows, cols - c0);
      }
    }
  }
  return 0;
}
