// Honest: reads all values, sixteen at a time.
extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  float found[16];
  for (float& each : found) each = x[0];
  for (int64_t i = 0; i < n; ++i) found[i % 16] = std::max(found[i % 16], x[i]);
  *out = *std::max_element(found, found + 16);
  return 0;
}
