// Defines another function than the one that is called.
extern "C" int run(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  return 0;
}
