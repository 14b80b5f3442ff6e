// The log-sum-exp of a row, and what a cross entropy makes of it.
static double row_log_sum_exp(const float* row, int64_t words) {
  const float peak = *std::max_element(row, row + words);
  double sum = 0;
  for (int64_t i = 0; i < words; ++i) sum += std::exp(row[i] - peak);
  return peak + std::log(sum);
}
