// Copies the input.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  std::memcpy(out, x, rows * cols * 4);
  return 0;
}
