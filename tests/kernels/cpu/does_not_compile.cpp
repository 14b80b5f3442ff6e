// Line 4 uses a name that is not declared.
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t r = 0; r < rows; ++r) {
    out[r] = softmax_of(x[r]);
  }
  return 0;
}
