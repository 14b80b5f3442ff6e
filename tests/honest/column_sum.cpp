// Every thread sums its share of the rows into a line of its own in the workspace; then the lines are added.
constexpr int64_t PAD = 16;  // lines of different threads never share a cache line

static int64_t line_length(int64_t cols) { return (cols + PAD - 1) / PAD * PAD; }

extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) {
  return omp_get_max_threads() * line_length(cols) * static_cast<int64_t>(sizeof(float));
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  float* lines = static_cast<float*>(workspace);
  const int64_t length = line_length(cols);
#pragma omp parallel
  {
    float* mine = lines + omp_get_thread_num() * length;
    std::fill(mine, mine + cols, 0.f);
#pragma omp for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
      for (int64_t c = 0; c < cols; ++c) mine[c] += x[r * cols + c];
    }
    const int threads = omp_get_num_threads();
#pragma omp for schedule(static)
    for (int64_t c = 0; c < cols; ++c) {
      float sum = 0.f;
      for (int t = 0; t < threads; ++t) sum += lines[t * length + c];
      out[c] = sum;
    }
  }
  return 0;
}
