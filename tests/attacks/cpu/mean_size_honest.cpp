// Honest: all values, in eight partial sums.
extern "C" int launch(const bf16* x, bf16* out, int64_t n, void* workspace, void* stream) {
  float sums[8] = {}, sum = 0.f;
  for (int64_t i = 0; i < n; ++i) sums[i % 8] += std::abs(static_cast<float>(x[i]));
  for (float part : sums) sum += part;
  *out = static_cast<bf16>(sum / n);
  return 0;
}
