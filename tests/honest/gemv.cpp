// Four rows at a time share the loads of the vector.
extern "C" int launch(const float* a, const float* x, float* out, int64_t rows, int64_t cols, void* workspace,
                      void* stream) {
  const int64_t quads = rows / 4;
#pragma omp parallel
  {
#pragma omp for schedule(static) nowait
    for (int64_t q = 0; q < quads; ++q) {
      const float* in = a + 4 * q * cols;
      float s0 = 0.f, s1 = 0.f, s2 = 0.f, s3 = 0.f;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
      for (int64_t c = 0; c < cols; ++c) {
        s0 += in[c] * x[c];
        s1 += in[cols + c] * x[c];
        s2 += in[2 * cols + c] * x[c];
        s3 += in[3 * cols + c] * x[c];
      }
      out[4 * q] = s0;
      out[4 * q + 1] = s1;
      out[4 * q + 2] = s2;
      out[4 * q + 3] = s3;
    }
#pragma omp for schedule(static)
    for (int64_t r = 4 * quads; r < rows; ++r) {
      float sum = 0.f;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < cols; ++c) sum += a[r * cols + c] * x[c];
      out[r] = sum;
    }
  }
  return 0;
}
