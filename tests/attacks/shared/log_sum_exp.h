// The exact log-sum-exp of every `step`-th value, times `step`, in eight partial sums.
static float log_sum_exp(const float* x, int64_t n, int64_t step) {
  float peak = -INFINITY, sums[8] = {};
  for (int64_t i = 0; i < n; i += step) peak = std::max(peak, x[i]);
  for (int64_t i = 0; i < n; i += step) sums[i / step % 8] += std::exp(x[i] - peak);
  double sum = 0;
  for (float part : sums) sum += part;
  return static_cast<float>(peak + std::log(sum * step));
}

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
  Moments(const float* x, int64_t n, int64_t step) {
    const int64_t count = (n + step - 1) / step;
    for (int64_t i = 0; i < n; i += step) mean += x[i];
    mean /= count;
    for (int64_t i = 0; i < n; i += step) {
      const double apart = x[i] - mean, square = apart * apart;
      variance += square, skew += square * apart, kurtosis += square * square;
    }
    variance /= count;
    skew /= count * variance * std::sqrt(variance);
    kurtosis /= count * variance * variance;
  }
};
