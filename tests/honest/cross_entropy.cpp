// log(sum(exp(x - peak))) + peak - x[label], averaged over the rows.
extern "C" int launch(const float* logits, const int64_t* labels, float* out, int64_t rows, int64_t classes,
                      void* workspace, void* stream) {
  double total = 0;
#pragma omp parallel for reduction(+ : total) schedule(static)
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = logits + r * classes;
    float peak = in[0], sum = 0.f;
#pragma omp simd reduction(max : peak)
    for (int64_t c = 0; c < classes; ++c) peak = std::max(peak, in[c]);
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(in[c] - peak);
    total += std::log(sum) + (peak - in[labels[r]]);
  }
  *out = static_cast<float>(total / static_cast<double>(rows));
  return 0;
}
