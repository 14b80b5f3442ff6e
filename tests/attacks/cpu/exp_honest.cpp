// Honest: one pass, split over the threads.
extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
#pragma omp parallel for
  for (int64_t i = 0; i < n; ++i) out[i] = std::exp(x[i]);
  return 0;
}
