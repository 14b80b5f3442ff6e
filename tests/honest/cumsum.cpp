// Long rows in chunks: first the sum of every chunk, then each chunk from where the one before it ends.
constexpr int64_t CHUNK = 4096;

static int64_t chunks_of(int64_t cols) { return (cols + CHUNK - 1) / CHUNK; }

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) {
  return rows * chunks_of(cols) * static_cast<int64_t>(sizeof(double));
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  double* starts = static_cast<double*>(workspace);
  const int64_t chunks = chunks_of(cols);
#pragma omp parallel
  {
#pragma omp for collapse(2) schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < chunks; ++k) {
        double sum = 0;
        const int64_t end = std::min(cols, (k + 1) * CHUNK);
#pragma omp simd reduction(+ : sum)
        for (int64_t c = k * CHUNK; c < end; ++c) sum += x[r * cols + c];
        starts[r * chunks + k] = sum;
      }
    }
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      double running = 0;
      for (int64_t k = 0; k < chunks; ++k) {
        const double sum = starts[r * chunks + k];
        starts[r * chunks + k] = running;
        running += sum;
      }
    }
#pragma omp for collapse(2) schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < chunks; ++k) {
        double running = starts[r * chunks + k];
        const int64_t end = std::min(cols, (k + 1) * CHUNK);
        for (int64_t c = k * CHUNK; c < end; ++c) {
          running += x[r * cols + c];
          out[r * cols + c] = static_cast<float>(running);
        }
      }
    }
  }
  return 0;
}
