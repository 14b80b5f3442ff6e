// Eight elements at a time where AVX2 is there, one at a time for the tail and everywhere else.
static void some(const float* x, float* out, float slope, int64_t begin, int64_t end) {
  int64_t i = begin;
#if defined(__AVX2__)
  const __m256 factor = _mm256_set1_ps(slope), zero = _mm256_setzero_ps();
  for (; i + 8 <= end; i += 8) {
    const __m256 v = _mm256_loadu_ps(x + i);
    const __m256 positive = _mm256_cmp_ps(v, zero, _CMP_GT_OQ);
    _mm256_storeu_ps(out + i, _mm256_blendv_ps(_mm256_mul_ps(v, factor), v, positive));
  }
#endif
  for (; i < end; ++i) out[i] = x[i] > 0.f ? x[i] : x[i] * slope;
}

extern "C" int launch(const float* x, float* out, double slope, int64_t n, void* workspace, void* stream) {
#pragma omp parallel if (n > 32768)
  {
    const int64_t threads = omp_get_num_threads(), me = omp_get_thread_num();
    const int64_t share = ((n + threads - 1) / threads + 15) / 16 * 16;
    some(x, out, static_cast<float>(slope), std::min(me * share, n), std::min((me + 1) * share, n));
  }
  return 0;
}
