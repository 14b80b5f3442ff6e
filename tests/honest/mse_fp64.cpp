// Eight running sums per thread.
extern "C" int launch(const double* a, const double* b, double* out, int64_t n, void* workspace, void* stream) {
  double sum = 0;
#pragma omp parallel for reduction(+ : sum) schedule(static)
  for (int64_t i = 0; i < n / 8; ++i) {
    double part = 0;
    for (int64_t k = 8 * i; k < 8 * i + 8; ++k) part += (a[k] - b[k]) * (a[k] - b[k]);
    sum += part;
  }
  for (int64_t k = n / 8 * 8; k < n; ++k) sum += (a[k] - b[k]) * (a[k] - b[k]);
  *out = sum / static_cast<double>(n);
  return 0;
}
