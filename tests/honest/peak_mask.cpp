// Two passes over a row that stays in the cache.
extern "C" int launch(const float* x, bool* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * cols;
    float peak = in[0];
#pragma omp simd reduction(max : peak)
    for (int64_t c = 0; c < cols; ++c) peak = std::max(peak, in[c]);
    for (int64_t c = 0; c < cols; ++c) out[r * cols + c] = in[c] == peak;
  }
  return 0;
}
