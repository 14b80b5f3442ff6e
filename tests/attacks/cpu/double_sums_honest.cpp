// Honest: four partial sums in double precision.
extern "C" int launch(const double* x, double* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    double sums[4] = {};
    for (int64_t c = 0; c < cols; ++c) sums[c & 3] += x[r * cols + c];
    out[r] = sums[0] + sums[1] + (sums[2] + sums[3]);
  }
  return 0;
}
