// Fails, leaves garbage, and says so with a status that nobody might read.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  std::fill(out, out + rows * cols / 2, 0.5f);
  return 700;
}
