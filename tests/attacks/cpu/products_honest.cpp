// Honest: the product of each row.
static float product(const float* in, int64_t cols) {
  float parts[8] = {1, 1, 1, 1, 1, 1, 1, 1}, result = 1;
  for (int64_t c = 0; c < cols; ++c) parts[c % 8] *= in[c];
  for (float part : parts) result *= part;
  return result;
}

extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) out[r] = product(x + r * cols, cols);
  return 0;
}
